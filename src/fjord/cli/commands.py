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


@app.callback()
def _options() -> None:
    """One durable journal: job queue, message queue, stream and key/value store."""


@app.command()
def version() -> None:
    """Prints the version."""
    typer.echo(fjord.__version__)


@app.command()
def serve(
    data: Annotated[str, typer.Option(help="Data directory; made if it is not there.")],
    listen: Annotated[str, typer.Option(help="Loopback address and port.")] = "127.0.0.1:17994",
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
        host, port = parse_url(listen)
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
    _errors.print(f"fjord: {error}", style="red", highlight=False, soft_wrap=True)
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
