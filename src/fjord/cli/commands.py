"""The command line: what every verb shares, and `fjord serve`.

Whatever takes long to load is imported by the verb that needs it, so that the others begin at once.
"""

from __future__ import annotations

import logging
from typing import Annotated

import typer

import fjord
from fjord import limits
from fjord.cli import (
    blocks,
    directory,
    jobs,
    journal,
    kestrel,
    kv,
    pipelines,
    push,
    spool,
    stream,
    table,
    wire,
    work,
)
from fjord.cli.arguments import (
    BLOCKS_VARIABLE,
    Awake,
    LogForm,
    LogFormat,
    Numeric,
    Verbose,
    check_directory,
    loopback,
    shown_address,
    wake_addresses,
)
from fjord.cli.directory import stats
from fjord.cli.forward import forward
from fjord.cli.output import Bar, explained
from fjord.errors import UsageError

app = typer.Typer(
    name="fjord",
    help="One durable journal: job queue, message queue, stream and key/value store.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
for part in (
    kv.app,
    jobs.app,
    stream.app,
    spool.app,
    blocks.app,
    pipelines.app,
    table.app,
    journal.app,
    kestrel.app,
    wire.app,
):
    app.add_typer(part)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(fjord.__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """One durable journal: job queue, message queue, stream and key/value store."""


Blocks = Annotated[
    str,
    typer.Option(
        "--blocks",
        envvar=BLOCKS_VARIABLE,
        help="Where cold blocks are: a folder, or a URL as s3://bucket/blocks.",
        show_default="blocks in the data directory",
    ),
]


@app.command()
def serve(
    data: Annotated[str, typer.Option(help="Data directory; made if it is not there.")],
    listen: Annotated[
        str, typer.Option(help="Loopback address and port, or a port alone.")
    ] = "127.0.0.1:17994",
    blocks_: Blocks = "",
    http: Annotated[
        str,
        typer.Option(
            help="Loopback address and port, or a port alone, for /metrics and /healthz.",
            show_default="off",
        ),
    ] = "",
    idle_seconds: Annotated[
        float, typer.Option(help="Close connections that ask nothing for so long.", min=0.1)
    ] = limits.IDLE_SECONDS_MAX,
    message_seconds: Annotated[
        float,
        typer.Option(help="Close connections that do not finish a message in time.", min=0.1),
    ] = limits.MESSAGE_SECONDS_MAX,
    memory_mib: Annotated[
        int,
        typer.Option(help="Memory for requests and replies; above it clients get BUSY.", min=16),
    ] = limits.SERVER_MEMORY_BYTES_MAX // limits.MIB,
    max_connections: Annotated[
        int, typer.Option(help="Connections at a time; further ones get BUSY.", min=1)
    ] = limits.CONNECTIONS_MAX,
    awake_us: Awake = None,
    wake: Annotated[
        str,
        typer.Option(
            help="Loopback addresses and ports, or ports alone, with commas between: where a "
            "datagram tells that a table has work.",
            show_default="off",
        ),
    ] = "",
    log_format: LogForm = LogFormat.text,
    verbose: Verbose = False,
) -> None:
    """Serves a data directory until SIGTERM or Ctrl-C.

    Example: fjord serve --data /var/lib/fjord --listen 127.0.0.1:17994
    """
    from fjord.engine import EngineSettings
    from fjord.server import daemon, logs, service
    from fjord.server.sessions import Bounds

    with explained(), Bar("rebuilding the index") as bar:
        _check_data(data)
        host, port = loopback(listen)
        options = daemon.DaemonOptions(
            data=data,
            host=host,
            port=port,
            http=loopback(http) if http else None,
            wake=wake_addresses(wake),
            blocks=blocks_,
            settings=EngineSettings(progress=bar.update),
            bounds=Bounds(
                idle_seconds=idle_seconds,
                message_seconds=message_seconds,
                memory_bytes=memory_mib * limits.MIB,
                connections=max_connections,
            ),
            awake_us=service.default_awake_us() if awake_us is None else awake_us,
            on_ready=lambda at, http_at: _ready(bar, at, http_at),
        )
        logs.set_up(log_format, logging.DEBUG if verbose else logging.INFO)
        daemon.serve(options)


def _check_data(data: str) -> None:
    if not data:
        raise UsageError("--data needs the name of a directory")
    check_directory(data)


def _ready(bar: Bar, at: tuple[str, int], http_at: tuple[str, int] | None) -> None:
    bar.stop()
    words = [
        "ready",
        shown_address("fjord", at),
        *([shown_address("http", http_at)] if http_at else []),
    ]
    typer.echo(" ".join(words))


app.command(cls=Numeric)(push.push)
app.command("next")(jobs.next_)
for verb in (
    jobs.done,
    work.work,
    forward,
    stats,
    directory.doctor,
    directory.backup,
    directory.restore,
):
    app.command()(verb)
