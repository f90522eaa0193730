"""Functions of frames are tested in the one Spark session of the suite."""

from __future__ import annotations

from tests.acceptance.conftest import spark

__all__ = ["spark"]
