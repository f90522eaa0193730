"""`fjord stream subscribers`, `seek`, `ack`, `unsubscribe`: who reads a stream, and from where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fjord.cli import arguments, output
from fjord.cli.arguments import StreamName
from fjord.cli.failing import explained
from fjord.cli.where import DAEMON, Data, Json, To, database
from fjord.errors import Code, NotFoundError

if TYPE_CHECKING:
    from fjord.client.database import Database
    from fjord.client.stream_calls import SubscriberInfo
    from fjord.client.streams import Stream
    from fjord.client.subscribers import Subscriber

Name = Annotated[str, typer.Argument(metavar="SUBSCRIBER", help="Its name.", show_default=False)]


def subscribers(
    table: StreamName,
    lag: Annotated[
        bool, typer.Option("--lag", help="Also count the messages ahead of each.")
    ] = False,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Lists subscribers by name: their marks, when these were moved, and whether they sleep.

    Exit code 1 if there is no such table.

    Example: fjord stream subscribers events --lag
    """
    with explained(), database(to, data, read_only=not lag) as db:
        db.table(table)
        stream = db.stream(table)
        found = (_describe(stream, one, lag=lag) for one in stream.subscribers())
        if as_json:
            for one in found:
                output.print_json(one)
            return
        names = ("name", "seq", "moved", "asleep", *(("lag",) if lag else ()))
        rows = (tuple(map(_cell, one.values())) for one in found)
        output.print_rows(names, rows, as_json=False)


def _describe(stream: Stream, one: SubscriberInfo, *, lag: bool) -> dict[str, object]:
    what: dict[str, object] = {
        "name": one.name,
        "seq": one.position,
        "moved_at": output.date(one.moved_at),
        "asleep": one.is_asleep,
    }
    return {**what, "lag": stream.subscriber(one.name).lag} if lag else what


def _cell(what: object) -> str:
    return str(what).lower() if isinstance(what, bool) else str(what)


def seek(
    table: StreamName,
    name: Name,
    where: Annotated[
        str,
        typer.Argument(
            metavar="WHERE", help="beginning, end, a seq, or a date.", show_default=False
        ),
    ],
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Sets the mark of a subscriber, also back; exit code 1 if there is no such one.

    Example: fjord stream seek events billing beginning

    Example: fjord stream seek events billing 2026-01-31T12:00:00Z
    """
    with explained():
        start = arguments.start(where)
        with database(to, data) as db:
            found = _existing(db, table, name)
            found.seek(start)
            _print_mark(table, found, as_json=as_json)


def ack(
    table: StreamName,
    name: Name,
    seq: Annotated[
        int,
        typer.Argument(
            metavar="SEQ", help="Everything up to here is processed.", min=0, show_default=False
        ),
    ],
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Moves the mark of a subscriber forward; one that is farther already stays.

    Exit code 1 if there is no such subscriber, or no such seq yet.

    Example: fjord stream ack events billing 4711
    """
    with explained(), database(to, data) as db:
        found = _existing(db, table, name)
        found.ack(seq)
        _print_mark(table, found, as_json=as_json)


def unsubscribe(
    table: StreamName,
    names: Annotated[
        list[str],
        typer.Argument(metavar="SUBSCRIBER", help="One or more names.", show_default=False),
    ],
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Takes subscribers away, with their marks; exit code 1 if there is no such one.

    Example: fjord stream unsubscribe events billing
    """
    with explained(), database(to, data) as db:
        for name in names:
            _existing(db, table, name).delete()
        if as_json:
            output.print_json({"table": table, "unsubscribed": names})


def _existing(db: Database, table: str, name: str) -> Subscriber:
    """Returns a subscriber that is there: a name that is mistyped makes no new one."""
    stream = db.stream(table)
    if name not in (one.name for one in stream.subscribers()):
        look = f"`fjord stream subscribers {table}` lists them"
        raise NotFoundError(Code.NOT_FOUND, f"{table} has no subscriber {name}; {look}")
    return stream.subscriber(name)


def _print_mark(table: str, found: Subscriber, *, as_json: bool) -> None:
    if as_json:
        output.print_json({"table": table, "name": found.name, "seq": found.position})
