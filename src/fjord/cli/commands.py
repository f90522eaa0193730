"""The verbs of the command line.

Exit codes: 0 done; 1 an error that the text explains; 2 wrong use, or a directory that cannot be
opened; 3 the disk failed to keep data.
"""

from __future__ import annotations

import logging
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

import fjord
from fjord import limits
from fjord.client.address import parse_url
from fjord.engine import Settings
from fjord.errors import CorruptionError, DirectoryError, DurabilityError, FjordError
from fjord.server import daemon

EXIT_ERROR, EXIT_USAGE, EXIT_DISK = 1, 2, 3

app = typer.Typer(
    name="fjord",
    help="One durable journal: job queue, message queue, stream and key/value store.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
_errors = Console(stderr=True)


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
    try:
        if not data:
            raise DirectoryError("--data needs the name of a directory")
        host, port = parse_url(f"127.0.0.1:{listen}" if listen.isdigit() else listen)
        with _RebuildBar() as bar:
            options = daemon.Options(
                data=data,
                host=host,
                port=port,
                settings=Settings(progress=bar.update),
                awake_us=daemon.default_awake_us() if awake_us is None else awake_us,
                on_ready=lambda at, number: _ready(bar, at, number),
            )
            daemon.serve(options)
    except DurabilityError as error:
        _fail(error, EXIT_DISK)
    except (CorruptionError, DirectoryError) as error:
        _fail(error, EXIT_USAGE)
    except FjordError as error:
        _fail(error, EXIT_ERROR)


def _ready(bar: _RebuildBar, host: str, port: int) -> None:
    bar.stop()
    shown = f"[{host}]" if ":" in host else host
    typer.echo(f"ready fjord://{shown}:{port}")


def _fail(error: FjordError, code: int) -> NoReturn:
    _errors.print(Text(f"fjord: {error}", style="red"), soft_wrap=True)
    raise typer.Exit(code)


class _RebuildBar:
    """A progress bar that appears only if an index has to be rebuilt."""

    def __init__(self) -> None:
        self._progress = Progress(
            TextColumn("rebuilding the index"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=_errors,
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
