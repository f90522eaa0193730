"""`fjord pipeline`: the ready jobs of the data pipeline, on any Spark."""

from __future__ import annotations

import typer

from fjord.cli.pipelines import (
    compact,
    dead_letters,
    ingest,
    init,
    kestrel_import,
    latest,
    lifecycle,
    reconcile,
    replay,
)

app = typer.Typer(
    name="pipeline",
    help="Runs the data pipeline on Spark: ingest, latest, compact, replay, imports and reports.",
    no_args_is_help=True,
)

app.command("init")(init.init)
app.command("reconcile")(reconcile.reconcile)
app.command("replay")(replay.replay)
app.command("ingest")(ingest.ingest)
app.command("latest")(latest.latest)
app.command("compact")(compact.compact)
app.command("lifecycle")(lifecycle.lifecycle)
app.command("dead-letters")(dead_letters.dead_letters)
app.command("kestrel-import")(kestrel_import.kestrel_import)
