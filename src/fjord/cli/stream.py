"""`fjord stream`: streams from the shell; appending, reading, following, and moving subscribers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Final

import typer

from fjord import limits
from fjord.cli import (
    arguments,
    lines,
    message_lines,
    output,
    row_json,
    stream_reading,
    subscribers,
)
from fjord.cli.arguments import Numeric, StreamName, TypeName
from fjord.cli.failing import EXIT_ERROR, explained, tell
from fjord.cli.progress import Bar
from fjord.cli.where import DAEMON, Data, Json, To, database
from fjord.client.stream_settings import StreamSettings
from fjord.errors import Code, NotFoundError, UsageError
from fjord.streams import SECOND_US, Mode, Settings

app = typer.Typer(
    name="stream",
    help="Makes streams, appends to them, reads and follows them, and moves subscribers.",
    no_args_is_help=True,
)

_USUAL: Final = Settings()
_MICRO: Final = 1 / SECOND_US  # the least that is more than nothing

Start = Annotated[
    str,
    typer.Option(
        help="Where to begin: beginning, end, a seq, or a date; with --subscriber a new one.",
        show_default="beginning",
    ),
]
Follow = Annotated[
    bool, typer.Option("-f", "--follow", help="Go on with what comes, until Ctrl-C.")
]
StreamKey = Annotated[str, typer.Argument(metavar="KEY", help="The key.", show_default=False)]
StreamKeys = Annotated[
    list[str], typer.Argument(metavar="KEY", help="One or more keys.", show_default=False)
]


@app.command()
def create(
    table: StreamName,
    mode: Annotated[
        Mode, typer.Option(help="Keep every message, or the latest of each key.")
    ] = Mode.LOG,
    history: Annotated[
        bool, typer.Option(help="Write what leaves the journal to cold blocks; a log always does.")
    ] = True,
    block_rows: Annotated[
        int, typer.Option(help="Messages of a block.", min=1, max=limits.BLOCK_ROWS_MAX)
    ] = _USUAL.block_rows,
    block_age: Annotated[
        float,
        typer.Option(
            parser=arguments.seconds(_MICRO, limits.BLOCK_AGE_US_MAX / SECOND_US),
            help="Seconds after which a block is written though it is not full.",
        ),
    ] = _USUAL.block_age_us / SECOND_US,
    retention: Annotated[
        float | None,
        typer.Option(
            parser=arguments.seconds(_MICRO, limits.RETENTION_US_MAX / SECOND_US),
            help="Seconds that blocks are kept.",
            show_default="for ever",
        ),
    ] = None,
    retention_bytes: Annotated[
        int | None,
        typer.Option(help="Bytes that all blocks may have.", min=1, show_default="any number"),
    ] = None,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Makes a stream with settings of its own; without, the first append makes a log.

    One that is there with the same settings is no error; exit code 1 if it has others.

    Example: fjord stream create profiles --mode latest

    Example: fjord stream create events --block-rows 100000 --retention 2592000
    """
    settings: StreamSettings = {
        "mode": mode,
        "history": history,
        "block_rows": block_rows,
        "block_age": block_age,
    }
    if retention is not None:
        settings["retention"] = retention
    if retention_bytes is not None:
        settings["retention_bytes"] = retention_bytes
    with explained(), database(to, data) as db:
        try:
            db.create_stream(table, **settings)
        except ValueError as error:
            raise UsageError(str(error)) from error
        if as_json:
            output.print_json({"table": table, "mode": mode.value})


# -- appending ------------------------------------------------------------------------------------


@app.command(cls=Numeric)
def append(
    table: StreamName,
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="VALUE",
            help="One or more messages; without, the lines of standard input.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[str, typer.Option(help="Their key; mode latest needs one.")] = "",
    type_: Annotated[TypeName, typer.Option("--type", help="What they are.")] = TypeName.string,
    rows: Annotated[
        list[str] | None,
        typer.Option(
            "--row", metavar="JSON", help="Declared columns, as an object; may be repeated."
        ),
    ] = None,
    json_lines: Annotated[
        bool,
        typer.Option(
            "--json-lines", help="Standard input has objects with key and value, or columns."
        ),
    ] = False,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Appends messages, and returns when they are on disk.

    Values that are given are appended all or none. Lines are appended as they come, so that this
    may stand behind `tail -f`; bad ones are told with their numbers, the rest is appended, and the
    exit code is 1 then. In a line of JSON bytes are {"base64": "..."}.

    Example: fjord stream append events "signed up" --key user:7

    Example: tail -f access.log | fjord stream append access

    Example: echo '{"key": "user:7", "value": 5}' | fjord stream append visits --json-lines

    Example: fjord stream append sites --row '{"uri": "http://example.com/a", "depth": 3}'
    """
    with explained():
        if rows:
            if values or json_lines:
                raise UsageError("--row gives the messages; give nothing else")
            _append_rows(table, key, rows, to, data, as_json=as_json)
            return
        if not values:
            _append_lines(table, key, None if json_lines else type_, to, data, as_json=as_json)
            return
        if json_lines:
            raise UsageError("--json-lines reads standard input; give it without values")
        parsed = [arguments.value(one, type_) for one in values]
        with database(to, data) as db:
            keys = [key] * len(parsed) if key else None
            seq = db.stream(table).append_many(parsed, keys=keys)
        if as_json:
            output.print_json({"table": table, "appended": len(parsed), "bad": 0, "seq": seq})


def _append_rows(
    table: str, key: str, texts: list[str], to: str, data: str, *, as_json: bool
) -> None:
    with database(to, data) as db:
        schema = row_json.schema_of(db, table)
        if key and schema.key:
            raise UsageError(f"the key of stream {table} is made of columns; give --row alone")
        rows = [row_json.row_of(text, schema) for text in texts]
        seq = db.stream(table).append_many(rows, keys=[key] * len(rows) if key else None)
    if as_json:
        output.print_json({"table": table, "appended": len(rows), "bad": 0, "seq": seq})


def _append_lines(
    table: str, key: str, type_: TypeName | None, to: str, data: str, *, as_json: bool
) -> None:
    with lines.opened(lines.STDIN) as (file, _), database(to, data) as db, Bar("appending") as bar:
        if type_ is None:
            read = message_lines.in_json(key, row_json.schema_of(db, table))
        else:
            read = message_lines.plain(key, type_)
        appending = message_lines.Appending(db.stream(table), read, bar.update)
        for bad in appending.run(file):
            tell(f"line {bad.number}: {bad.reason}", style="yellow")
    if as_json:
        output.print_json(
            {
                "table": table,
                "appended": appending.appended,
                "bad": appending.bad,
                "seq": appending.last_seq,
            }
        )
    else:
        appended = output.counted(appending.appended, "message")
        tell(f"{appended} appended, {output.counted(appending.bad, 'bad line')}")
    if appending.bad:
        raise typer.Exit(EXIT_ERROR)


# -- reading --------------------------------------------------------------------------------------


@app.command()
def read(
    table: StreamName,
    subscriber: Annotated[
        str,
        typer.Option(metavar="NAME", help="Read from its mark, and move it; made if missing."),
    ] = "",
    start: Start = "",
    count: Annotated[
        int | None,
        typer.Option("-n", "--count", help="At most so many messages.", min=1, show_default="all"),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            parser=arguments.seconds(high=arguments.WAIT_MAX),
            help="Seconds to wait for the first one.",
        ),
    ] = 0.0,
    follow: Follow = False,
    ack_: Annotated[
        bool, typer.Option("--ack/--no-ack", help="Move the mark of the subscriber.")
    ] = True,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Prints messages in order, up to where the stream ends now, or as they come.

    With --subscriber they are acknowledged when they are printed; exit code 1 if somebody moves
    the subscriber meanwhile, or if there is no such table.

    Example: fjord stream read events --start 2026-01-31T12:00:00Z

    Example: fjord stream read events --subscriber billing -n 1000 --json

    Example: fjord stream read events --start end --follow
    """
    with explained():
        begin = arguments.start(start or "beginning")
        # Only a subscriber is found by date, if only for a moment, and to make one is to write.
        writes = bool(subscriber) or isinstance(begin, datetime)
        with database(to, data, read_only=not writes) as db, _until_stopped(follow):
            db.table(table)  # one that is not there would look like an empty one
            stream = db.stream(table)
            named = stream.subscriber(subscriber, start=begin) if subscriber else None
            reader: stream_reading.Reads = named or stream.reader(start=begin)
            for batch in stream_reading.batches(
                reader, count=count, wait=wait or None, follow=follow
            ):
                stream_reading.print_messages(batch, as_json=as_json, follow=follow)
                if named is not None and ack_ and len(batch):
                    named.ack(batch)


@app.command()
def tail(
    table: StreamName,
    count: Annotated[
        int,
        typer.Option("-n", "--count", help="So many messages.", min=0, max=limits.READ_COUNT_MAX),
    ] = 10,
    follow: Follow = False,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Prints the last messages, and those that come with -f; exit code 1 if there is no such table.

    Example: fjord stream tail events -n 100

    Example: fjord stream tail events -f --json
    """
    with explained(), database(to, data, read_only=True) as db, _until_stopped(follow):
        db.table(table)
        stream = db.stream(table)
        found, end_seq = stream_reading.last(stream, count)
        stream_reading.print_messages(found, as_json=as_json, follow=follow)
        if follow:
            reader = stream.reader(start=end_seq + 1)
            for batch in stream_reading.batches(reader, count=None, wait=None, follow=True):
                stream_reading.print_messages(batch, as_json=as_json, follow=True)


@contextlib.contextmanager
def _until_stopped(follow: bool) -> Iterator[None]:
    """Lets Ctrl-C be the way to end what goes on for ever."""
    if follow:
        tell("following; Ctrl-C ends it", style="dim")
    try:
        yield
    except KeyboardInterrupt:
        if not follow:
            raise


# -- the latest of each key -----------------------------------------------------------------------


@app.command()
def get(
    table: StreamName, key: StreamKey, to: To = DAEMON, data: Data = "", as_json: Json = False
) -> None:
    """Prints the latest message of a key, in mode latest; exit code 1 if there is none.

    Example: fjord stream get profiles user:7
    """
    with explained(), database(to, data, read_only=True) as db:
        entry = db.stream(table).entry(key)
        if entry is None:
            raise NotFoundError(Code.NOT_FOUND, f"stream {table} has no key {key}")
        if as_json:
            at = output.date(entry.written_at)
            type_ = entry.type.name.lower()
            output.print_json({"key": key, "at": at, "type": type_, "value": entry.value})
        else:
            output.print_value(entry.value)


@app.command()
def delete(
    table: StreamName, keys: StreamKeys, to: To = DAEMON, data: Data = "", as_json: Json = False
) -> None:
    """Takes the messages of keys away, in mode latest; subscribers are told by tombstones.

    Exit code 1 if one of the keys had none; the others are deleted all the same.

    Example: fjord stream delete profiles user:7
    """
    with explained(), database(to, data) as db:
        missing = db.stream(table).delete_many(keys)
        if as_json:
            gone = [key for key in keys if key not in set(missing)]
            output.print_json({"table": table, "deleted": gone, "missing": missing})
        else:
            for key in missing:
                tell(f"fjord: stream {table} has no key {key}")
        if missing:
            raise typer.Exit(EXIT_ERROR)


# -- subscribers ----------------------------------------------------------------------------------

for verb in (subscribers.subscribers, subscribers.seek, subscribers.ack, subscribers.unsubscribe):
    app.command()(verb)
