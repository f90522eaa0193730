"""The command line: what every verb shares, and `fjord serve`."""

from __future__ import annotations

import logging
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

import fjord
from fjord import limits
from fjord.cli import kv
from fjord.cli.failing import errors, explained
from fjord.client.address import parse_url
from fjord.engine import Settings
from fjord.errors import DirectoryError
from fjord.server import daemon

app = typer.Typer(
    name="fjord",
    help="One durable journal: job queue, message queue, stream and key/value store.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
app.add_typer(kv.app)


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


@app.command()
def serve(
    data: Annotated[str, typer.Option(help="Data directory; made if it is not there.")],
    listen: Annotated[
        str, typer.Option(help="Loopback address and port, or a port alone.")
    ] = "127.0.0.1:17994",
    awake_us: Annotated[
        int | None,
        typer.Option(
            help="Microseconds to stay awake after a reply: faster answers for some processor "
            "time. 0 = sleep at once.",
            min=0,
            max=limits.AWAKE_US_MAX,
            show_default="150, or 0 with one processor",
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log more.")] = False,
) -> None:
    """Serves a data directory until SIGTERM or Ctrl-C.

    Example: fjord serve --data /var/lib/fjord --listen 127.0.0.1:17994
    """
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
    )
    with explained(), _RebuildBar() as bar:
        if not data:
            raise DirectoryError("--data needs the name of a directory")
        host, port = parse_url(f"127.0.0.1:{listen}" if listen.isdigit() else listen)
        options = daemon.Options(
            data=data,
            host=host,
            port=port,
            settings=Settings(progress=bar.update),
            awake_us=daemon.default_awake_us() if awake_us is None else awake_us,
            on_ready=lambda at, number: _ready(bar, at, number),
        )
        daemon.serve(options)


def _ready(bar: _RebuildBar, host: str, port: int) -> None:
    bar.stop()
    shown = f"[{host}]" if ":" in host else host
    typer.echo(f"ready fjord://{shown}:{port}")


class _RebuildBar:
    """A progress bar that appears only if an index has to be rebuilt."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("rebuilding the index"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=errors,
            transient=True,
        )
        self._task = self._progress.add_task("rebuild", total=None)
        self._started = False

    def __enter__(self) -> _RebuildBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def update(self, done: int, total: int) -> None:
        if not self._started:
            self._started = True
            self._progress.start()
        self._progress.update(self._task, completed=done, total=total)

    def stop(self) -> None:
        if self._started:
            self._started = False
            self._progress.stop()
