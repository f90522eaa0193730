"""The command line: its nouns and verbs, each imported on demand.

A short command spends most of its time on its start.  So only the requested noun or verb is
imported and gets its options built; help and completion, which list all, build all.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

import typer

import fjord
from fjord.cli.arguments import Numeric, PlainGroup, option, verb

# The module and the app or function of each command, in the order of the help.
_PLACES: Final = {
    "serve": ("serve", "serve"),
    "push": ("push", "push"),
    "next": ("jobs", "next_"),
    "done": ("jobs", "done"),
    "work": ("work", "work"),
    "forward": ("forward", "forward"),
    "stats": ("directory", "stats"),
    "doctor": ("directory", "doctor"),
    "backup": ("directory", "backup"),
    "restore": ("directory", "restore"),
    "kv": ("kv", "app"),
    "jobs": ("jobs", "app"),
    "stream": ("stream", "app"),
    "spool": ("spool", "app"),
    "blocks": ("blocks", "app"),
    "pipeline": ("pipelines", "app"),
    "table": ("table", "app"),
    "journal": ("journal", "app"),
    "kestrel": ("kestrel", "app"),
    "wire": ("wire", "app"),
}


class _Commands(Mapping[str, Any]):
    """All commands by name."""

    def __getitem__(self, name: str) -> Any:
        module, attribute = _PLACES[name]
        found = getattr(importlib.import_module(f"fjord.cli.{module}"), attribute)
        if isinstance(found, typer.Typer):
            return typer.main.get_group(found)
        alone = typer.Typer(add_completion=False)
        verb(alone, name, Numeric if name == "push" else None)(found)
        return typer.main.get_command(alone)

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


class _Group(PlainGroup):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _Commands()  # type: ignore[assignment]  # it is read only


app = typer.Typer(
    name="fjord",
    cls=_Group,
    help="One durable journal: job queue, message queue, stream and key/value store.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(fjord.__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, option("Print the version.", "--version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """One durable journal: job queue, message queue, stream and key/value store."""
