"""Warehouses: tables of Parquet with a manifest, or of Delta, that batches are added to once.

warehouse.read(spark, target)      a frame of all that is committed
warehouse.files(target)            its files
"""

from __future__ import annotations

from fjord.spark.warehouse.manifest import DataFile
from fjord.spark.warehouse.tables import (
    GRACE,
    Warehouse,
    files,
    orphans,
    read,
    sweep,
    warehouse_at,
)

__all__ = [
    "GRACE",
    "DataFile",
    "Warehouse",
    "files",
    "orphans",
    "read",
    "sweep",
    "warehouse_at",
]
