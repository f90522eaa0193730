"""`fjord kv`: key/value tables from the shell, to try an installation without code."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable
from typing import Annotated, Final

import typer

import fjord
from fjord.cli.failing import explained
from fjord.client.database import Database
from fjord.client.kv import Entry
from fjord.commands import DEFAULT_TABLE
from fjord.errors import Code, FjordError, NotFoundError
from fjord.values import Type, Value

app = typer.Typer(
    name="kv", help="Sets, gets and deletes values of key/value tables.", no_args_is_help=True
)

Key = Annotated[str, typer.Argument(help="The key.", show_default=False)]
Table = Annotated[str, typer.Option(help="The table.")]
To = Annotated[str, typer.Option(help="Address of the daemon.")]
Data = Annotated[str, typer.Option(help="A data directory, used instead of a daemon.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_DAEMON: Final = "fjord://127.0.0.1:17994"


@app.command("set")
def set_(
    key: Key,
    value: Annotated[str, typer.Argument(help="The value.", show_default=False)],
    type_: Annotated[
        str, typer.Option("--type", help="void, buffer, string, integer, float or boolean.")
    ] = "string",
    table: Table = DEFAULT_TABLE,
    to: To = _DAEMON,
    data: Data = "",
) -> None:
    """Gives a key a value, and returns when it is on disk.

    Example: fjord kv set retries 3 --type integer --table settings
    """
    with explained():
        parsed = _parse(value, type_)
        with _database(to, data) as db:
            db.kv(table).set(key, parsed)


@app.command()
def get(
    key: Key, table: Table = DEFAULT_TABLE, to: To = _DAEMON, data: Data = "", as_json: Json = False
) -> None:
    """Prints the value of a key; exit code 1 if there is none.

    Example: fjord kv get retries --table settings
    """
    with explained(), _database(to, data, read_only=True) as db:
        entry = db.kv(table).entry(key)
        if entry is None:
            raise NotFoundError(Code.NOT_FOUND, f"table {table} has no key {key}")
        if as_json:
            typer.echo(json.dumps(_describe(key, entry)))
        elif isinstance(entry.value, bytes):
            sys.stdout.buffer.write(entry.value)
        else:
            typer.echo(_shown(entry.value))


@app.command()
def delete(key: Key, table: Table = DEFAULT_TABLE, to: To = _DAEMON, data: Data = "") -> None:
    """Takes the value of a key away; a missing key is no error.

    Example: fjord kv delete retries --table settings
    """
    with explained(), _database(to, data) as db:
        db.kv(table).delete(key)


def _database(to: str, data: str, *, read_only: bool = False) -> Database:
    return fjord.open(data, read_only=read_only) if data else fjord.connect(to)


def _parse(text: str, type_: str) -> Value:
    parser = _PARSERS.get(type_)
    if parser is None:
        raise FjordError(f"{type_} is no type; types are {', '.join(_PARSERS)}")
    try:
        return parser(text)
    except ValueError as error:
        raise FjordError(f"{text} is no {type_}") from error


def _parse_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return text.lower() == "true"


def _shown(value: Value) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _describe(key: str, entry: Entry) -> dict[str, object]:
    """Returns an entry for JSON; bytes as base64."""
    value = entry.value
    return {
        "key": key,
        "type": entry.type.name.lower(),
        "value": base64.b64encode(value).decode() if isinstance(value, bytes) else value,
        "written_at": entry.written_at.isoformat(),
        "expires_at": entry.expires_at.isoformat() if entry.expires_at else None,
    }


_PARSERS: Final[dict[str, Callable[[str], Value]]] = {
    Type.VOID.name.lower(): lambda text: None,
    Type.BUFFER.name.lower(): lambda text: text.encode(errors="surrogateescape"),
    Type.STRING.name.lower(): str,
    Type.INTEGER.name.lower(): int,
    Type.FLOAT.name.lower(): float,
    Type.BOOLEAN.name.lower(): _parse_boolean,
}
