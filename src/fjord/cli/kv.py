"""`fjord kv`: key/value tables from the shell, to try an installation without code."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated

import typer

from fjord.cli import arguments, output
from fjord.cli.arguments import DAEMON, Data, Json, Numeric, To, database
from fjord.cli.output import explained, tell
from fjord.client.database import Database
from fjord.client.entries import Change, Entry
from fjord.client.pages import Span
from fjord.commands import DEFAULT_TABLE
from fjord.errors import Code, NotFoundError
from fjord.values import Value

TypeName = arguments.TypeName

app = typer.Typer(
    name="kv", help="Reads, writes and watches key/value tables.", no_args_is_help=True
)

Key = Annotated[str, typer.Argument(metavar="KEY", help="The key.", show_default=False)]
Keys = Annotated[
    list[str], typer.Argument(metavar="KEY", help="One or more keys.", show_default=False)
]
Table = Annotated[str, typer.Option(help="The table.")]
Ttl = Annotated[
    float | None, typer.Option(help="Seconds that it lives, and again after each touch.")
]
ExpiresAt = Annotated[
    str,
    typer.Option(
        help="The moment until which it lives, within 30 days: a date as 2026-01-31T12:00:00Z."
    ),
]


@app.command("set", cls=Numeric)
def set_(
    key: Key,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The value.", show_default=False)],
    type_: Annotated[TypeName, typer.Option("--type", help="What it is.")] = TypeName.string,
    ttl: Ttl = None,
    expires_at: ExpiresAt = "",
    overwrite: Annotated[
        bool, typer.Option(help="Replace a value that is there, or refuse.")
    ] = True,
    persist: Annotated[bool, typer.Option(help="Keep it on disk, or in memory only.")] = True,
    also: Annotated[
        list[str] | None, typer.Option(help="A further key of the value; may be repeated.")
    ] = None,
    table: Table = DEFAULT_TABLE,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Gives a key a value, and returns when it is on disk.

    Example: fjord kv set retries 3 --type integer --table settings

    Example: fjord kv set session-7 alice --ttl 3600 --no-overwrite
    """
    with explained():
        parsed, until = arguments.value(value, type_), arguments.moment(expires_at)
        with database(to, data) as db:
            db.kv(table).set(
                key,
                parsed,
                ttl=ttl,
                expires_at=until,
                overwrite=overwrite,
                persist=persist,
                also=also or None,
            )
        _done(as_json, table=table, key=key)


@app.command()
def get(
    key: Key, table: Table = DEFAULT_TABLE, to: To = DAEMON, data: Data = "", as_json: Json = False
) -> None:
    """Prints the value of a key; exit code 1 if there is none.

    Example: fjord kv get retries --table settings

    Example: fjord kv get retries --table settings --json
    """
    with explained(), database(to, data, read_only=True) as db:
        entry = _entry(db, table, key)
        if as_json:
            output.print_json(output.describe(key, entry))
        else:
            output.print_value(entry.value)


@app.command()
def delete(
    keys: Keys,
    purge: Annotated[
        bool, typer.Option("--purge", help="Leave no tombstone; older writes can come back.")
    ] = False,
    table: Table = DEFAULT_TABLE,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Takes the values of keys away; a missing key is no error.

    Example: fjord kv delete retries --table settings
    """
    with explained(), database(to, data) as db:
        db.kv(table).delete_many(keys, purge=purge)
        _done(as_json, table=table, keys=keys)


@app.command(cls=Numeric)
def add(
    key: Key,
    amount: Annotated[
        str,
        typer.Argument(
            metavar="AMOUNT", help="What to add: an integer or a float.", show_default=False
        ),
    ],
    table: Table = DEFAULT_TABLE,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Adds to a number where it is, and prints the new one.

    Example: fjord kv add visits 1

    Example: fjord kv add balance -2.5 --table accounts
    """
    with explained():
        number = arguments.number(amount)
        with database(to, data) as db, _named(table, key):
            _new_value(key, db.kv(table).add(key, number), as_json=as_json)


@app.command()
def flip(
    key: Key, table: Table = DEFAULT_TABLE, to: To = DAEMON, data: Data = "", as_json: Json = False
) -> None:
    """Turns true into false and false into true, and prints the new value.

    Example: fjord kv flip debug --table settings
    """
    with explained(), database(to, data) as db, _named(table, key):
        _new_value(key, db.kv(table).flip(key), as_json=as_json)


@app.command()
def truncate(
    key: Key,
    size: Annotated[
        int, typer.Argument(metavar="SIZE", help="How many bytes to keep.", show_default=False)
    ],
    table: Table = DEFAULT_TABLE,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Keeps the first bytes of a string or buffer, and prints the new value.

    Example: fjord kv truncate note 10
    """
    with explained(), database(to, data) as db, _named(table, key):
        _new_value(key, db.kv(table).truncate(key, size), as_json=as_json)


@app.command()
def rename(
    key: Key,
    new: Annotated[str, typer.Argument(metavar="NEW", help="Its new key.", show_default=False)],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a value that NEW has.")
    ] = False,
    table: Table = DEFAULT_TABLE,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Gives a value another key; its expiry and its dates stay.

    Example: fjord kv rename draft final --overwrite
    """
    with explained(), database(to, data) as db, _named(table, key):
        db.kv(table).rename(key, new, overwrite=overwrite)
        _done(as_json, table=table, key=new)


@app.command()
def touch(
    key: Key,
    ttl: Ttl = None,
    expires_at: ExpiresAt = "",
    table: Table = DEFAULT_TABLE,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Lets a value live longer, by its own TTL or as given, and prints it.

    Example: fjord kv touch session-7

    Example: fjord kv touch session-7 --ttl 3600
    """
    with explained():
        until = arguments.moment(expires_at)
        with database(to, data) as db, _named(table, key):
            db.kv(table).touch(key, ttl=ttl, expires_at=until)
            entry = _entry(db, table, key)
            if as_json:
                output.print_json(output.describe(key, entry))
            else:
                output.print_value(entry.value)


@app.command("list")
def list_(
    prefix: Annotated[str, typer.Option(help="Only keys that begin so.")] = "",
    match: Annotated[
        str, typer.Option(help="Only keys in which this regular expression (RE2) is found.")
    ] = "",
    start: Annotated[str, typer.Option("--from", help="The first key.")] = "",
    stop: Annotated[str, typer.Option("--until", help="The first key that is too far.")] = "",
    limit: Annotated[
        int | None, typer.Option(help="At most so many.", min=1, show_default="all")
    ] = None,
    table: Table = DEFAULT_TABLE,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    r"""Lists keys, types and values in the order of keys.

    Example: fjord kv list --prefix user: --limit 20

    Example: fjord kv list --match '^user:\d+$' --json
    """
    with explained(), database(to, data, read_only=True) as db:
        span = Span(
            start=start or None,
            stop=stop or None,
            prefix=prefix or None,
            match=match or None,
            limit=limit,
        )
        found = db.kv(table).entries(span)
        if as_json:
            for key, entry in found:
                output.print_json(output.describe(key, entry))
            return
        rows = ((key, entry.type.name.lower(), output.shown(entry.value)) for key, entry in found)
        output.print_rows(("key", "type", "value"), rows, as_json=False)


@app.command()
def watch(
    keys: Keys,
    table: Table = DEFAULT_TABLE,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Prints a line whenever one of the keys changes, until Ctrl-C.

    Example: fjord kv watch retries debug --table settings
    """
    with explained(), database(to, data) as db:
        try:
            with db.kv(table).listen(*keys) as changes:
                tell("watching; Ctrl-C ends it", style="dim")
                for change in changes:
                    _print_change(change, as_json=as_json)
        except KeyboardInterrupt:
            return


def _print_change(change: Change, *, as_json: bool) -> None:
    if as_json:
        output.print_json(output.describe_change(change))
        return
    what = "deleted" if change.deleted else f"= {output.shown(change.value)}"
    output.print_line(change.written_at.isoformat(), output.key_text(change.key), what)


def _entry(db: Database, table: str, key: str) -> Entry:
    entry = db.kv(table).entry(key)
    if entry is None:
        raise _not_found(table, key)
    return entry


@contextlib.contextmanager
def _named(table: str, key: str) -> Iterator[None]:
    """Says which key is not there; a server says only that it is not."""
    try:
        yield
    except NotFoundError as error:
        raise _not_found(table, key) from error


def _not_found(table: str, key: str) -> NotFoundError:
    return NotFoundError(Code.NOT_FOUND, f"table {table} has no key {key}")


def _new_value(key: str, value: Value, *, as_json: bool) -> None:
    if as_json:
        output.print_json({"key": key, "value": value})
    else:
        output.print_value(value)


def _done(as_json: bool, **what: object) -> None:
    """Says in JSON what was done; for people, no news is good news."""
    if as_json:
        output.print_json(what)
