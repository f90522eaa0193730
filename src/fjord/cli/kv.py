"""`fjord kv`: key/value tables from the shell."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Annotated

from fjord.cli import arguments, output
from fjord.cli.arguments import Key, Keys, Node, Numeric, TypeName, argument, noun, option, verb
from fjord.cli.output import tell
from fjord.client.blocking.database import Database
from fjord.client.pages import Span
from fjord.commands import DEFAULT_TABLE
from fjord.errors import Code, NotFoundError
from fjord.text import key_text, value_text

app = noun("kv", "Reads, writes and watches key/value tables.")

Table = Annotated[str, option("The table.")]
Ttl = Annotated[float | None, option("Seconds until it expires; each touch starts them again.")]
ExpiresAt = Annotated[
    str, option("When it expires: a date within 30 days, such as 2026-01-31T12:00:00Z.")
]


@verb(app, "set", cls=Numeric)
def set_(
    node: Node,
    key: Key,
    value: Annotated[str, argument("VALUE", "The value.")],
    type_: Annotated[TypeName, option("The type of VALUE.", "--type")] = TypeName.string,
    ttl: Ttl = None,
    expires_at: ExpiresAt = "",
    overwrite: Annotated[bool, option("Replace an existing value, or refuse.")] = True,
    persist: Annotated[bool, option("Keep it on disk, or in memory only.")] = True,
    also: Annotated[
        list[str] | None, option("A further key of the value; may be repeated.")
    ] = None,
    table: Table = DEFAULT_TABLE,
) -> None:
    """Sets the value of a key, and returns when it is on disk.

    Example: fjord kv set retries 3 --type integer --table settings

    Example: fjord kv set session-7 alice --ttl 3600 --no-overwrite
    """
    parsed, until = arguments.value(value, type_), arguments.moment(expires_at)
    with node.open() as db:
        db.kv(table).set(
            key,
            parsed,
            ttl=ttl,
            expires_at=until,
            overwrite=overwrite,
            persist=persist,
            also=also or None,
        )
    node.done(table=table, key=key)


@verb(app)
def get(node: Node, key: Key, table: Table = DEFAULT_TABLE) -> None:
    """Prints the value of a key; exit code 1 if there is none.

    Example: fjord kv get retries --table settings

    Example: fjord kv get retries --table settings --json
    """
    with node.open(read_only=True) as db:
        _print_entry(node, db, table, key)


@verb(app)
def delete(
    node: Node,
    keys: Keys,
    purge: Annotated[
        bool, option("Leave no tombstone; a delayed older write can come back.", "--purge")
    ] = False,
    table: Table = DEFAULT_TABLE,
) -> None:
    """Deletes the values of keys; a missing key is no error.

    Example: fjord kv delete retries --table settings
    """
    with node.open() as db:
        db.kv(table).delete_many(keys, purge=purge)
        node.done(table=table, keys=keys)


@verb(app, cls=Numeric)
def add(
    node: Node,
    key: Key,
    amount: Annotated[str, argument("AMOUNT", "What to add: an integer or a float.")],
    table: Table = DEFAULT_TABLE,
) -> None:
    """Adds to a number atomically, and prints the result.

    Example: fjord kv add visits 1

    Example: fjord kv add balance -2.5 --table accounts
    """
    number = arguments.number(amount)
    with node.open() as db, _named(table, key):
        value = db.kv(table).add(key, number)
        node.print_value(value, {"key": key, "value": value})


@verb(app)
def flip(node: Node, key: Key, table: Table = DEFAULT_TABLE) -> None:
    """Inverts a boolean, and prints the new value.

    Example: fjord kv flip debug --table settings
    """
    with node.open() as db, _named(table, key):
        value = db.kv(table).flip(key)
        node.print_value(value, {"key": key, "value": value})


@verb(app)
def truncate(
    node: Node,
    key: Key,
    size: Annotated[int, argument("SIZE", "How many bytes to keep.")],
    table: Table = DEFAULT_TABLE,
) -> None:
    """Keeps the first bytes of a string or buffer, and prints the new value.

    Example: fjord kv truncate note 10
    """
    with node.open() as db, _named(table, key):
        value = db.kv(table).truncate(key, size)
        node.print_value(value, {"key": key, "value": value})


@verb(app)
def rename(
    node: Node,
    key: Key,
    new: Annotated[str, argument("NEW", "The new key.")],
    overwrite: Annotated[bool, option("Replace an existing value of NEW.", "--overwrite")] = False,
    table: Table = DEFAULT_TABLE,
) -> None:
    """Gives a value another key; its expiry and its dates stay.

    Example: fjord kv rename draft final --overwrite
    """
    with node.open() as db, _named(table, key):
        db.kv(table).rename(key, new, overwrite=overwrite)
        node.done(table=table, key=new)


@verb(app)
def touch(
    node: Node, key: Key, ttl: Ttl = None, expires_at: ExpiresAt = "", table: Table = DEFAULT_TABLE
) -> None:
    """Extends the life of a value, by its own TTL or as given, and prints it.

    Example: fjord kv touch session-7

    Example: fjord kv touch session-7 --ttl 3600
    """
    until = arguments.moment(expires_at)
    with node.open() as db, _named(table, key):
        db.kv(table).touch(key, ttl=ttl, expires_at=until)
        _print_entry(node, db, table, key)


@verb(app, "list")
def list_(
    node: Node,
    prefix: Annotated[str, option("Only keys that begin with this.")] = "",
    match: Annotated[str, option("Only keys with a match of this regular expression (RE2).")] = "",
    start: Annotated[str, option("The first key.", "--from")] = "",
    stop: Annotated[str, option("The key to stop before.", "--until")] = "",
    limit: Annotated[int | None, option("Maximum number.", min=1, shown="all")] = None,
    table: Table = DEFAULT_TABLE,
) -> None:
    r"""Lists keys, types and values in key order.

    Example: fjord kv list --prefix user: --limit 20

    Example: fjord kv list --match '^user:\d+$' --json
    """
    with node.open(read_only=True) as db:
        span = Span(
            start=start or None,
            stop=stop or None,
            prefix=prefix or None,
            match=match or None,
            limit=limit,
        )
        node.print_all(
            db.kv(table).entries(span),
            lambda found: output.describe(*found),
            ("key", "type", "value"),
            lambda found: (found[0], found[1].type.name.lower(), value_text(found[1].value)),
        )


@verb(app)
def watch(node: Node, keys: Keys, table: Table = DEFAULT_TABLE) -> None:
    """Prints a line whenever one of the keys changes, until Ctrl-C.

    Example: fjord kv watch retries debug --table settings
    """
    with (
        node.open() as db,
        contextlib.suppress(KeyboardInterrupt),
        db.kv(table).listen(*keys) as changes,
    ):
        tell("watching; press Ctrl-C to stop", style="dim")
        for change in changes:
            what = "deleted" if change.deleted else f"= {value_text(change.value)}"
            cells = change.written_at.isoformat(), key_text(change.key), what
            output.print_one(output.describe_change(change), *cells, as_json=node.as_json)


def _print_entry(node: Node, db: Database, table: str, key: str) -> None:
    entry = db.kv(table).entry(key)
    if entry is None:
        raise _not_found(table, key)
    node.print_value(entry.value, output.describe(key, entry))


@contextlib.contextmanager
def _named(table: str, key: str) -> Iterator[None]:
    """Adds the missing key's name to the server's error."""
    try:
        yield
    except NotFoundError as error:
        raise _not_found(table, key) from error


def _not_found(table: str, key: str) -> NotFoundError:
    return NotFoundError(Code.NOT_FOUND, f"table {table} has no key {key}")
