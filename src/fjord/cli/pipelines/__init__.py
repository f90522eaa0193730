"""`fjord pipeline`: the ready jobs of the data pipeline, on any Spark."""

from __future__ import annotations

import typer

app = typer.Typer(
    name="pipeline",
    help="Runs the data pipeline on Spark: ingest, latest, compact, replay and reports.",
    no_args_is_help=True,
)
