"""Tables: how they are listed, their settings as users give them, and files that declare them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple, TypedDict

from fjord import jobs, limits, streams
from fjord import settings as settings_module
from fjord.client.calls import Call, Steps, check_names, done, expect, expect_rows, read_name
from fjord.client.entries import Seconds, delay_us
from fjord.commands import CreateTable, ListTables, Reply, TableList
from fjord.declared import declaration
from fjord.declared.declaration import Declaration, Index, Location, Problems
from fjord.declared.schema import Column, Columns, Schema
from fjord.errors import Code, DeclarationError, ExistsError, FjordError
from fjord.kinds import BY_NUMBER, Kind, settings_of


@dataclass(frozen=True, slots=True, kw_only=True)
class TableInfo:
    """A table as it was declared."""

    name: str
    kind: str  # "kv", "jobs" or "stream"
    id: int  # the number that ops carry
    settings: bytes = b""


def tables_call() -> Call[list[TableInfo]]:
    return Call(ListTables(), _tables)


def table_call(name: str) -> Call[TableInfo]:
    def read(reply: Reply) -> TableInfo:
        found = _tables(reply)
        expect_rows(len(found), 1)
        return found[0]

    return Call(ListTables(name=name), read)


def _tables(reply: Reply) -> list[TableInfo]:
    found = expect(reply, TableList)
    rows = zip(found.names.rows(), found.kinds, found.ids, found.settings.rows(), strict=True)
    return [
        TableInfo(name=read_name(name), kind=_kind(number), id=id_, settings=settings)
        for name, number, id_, settings in rows
    ]


def _kind(number: int) -> str:
    """Returns the name of a kind, or the number of an unknown one."""
    return str(BY_NUMBER.get(number, number))


# -- settings of jobs tables and streams, as users give them --------------------------------------


class JobSettings(TypedDict, total=False):
    """Settings of a jobs table; fixed when it is created."""

    merge: bool  # a push whose key already waits is merged; default True
    fairness: str  # "none" (default), or "domain": domains take turns
    lease: Seconds  # default length of a lease; an hour
    timeouts_max: int  # a job that fails or times out more often is dead; 5
    debounce: Seconds  # merging moves no date beyond insertion date + this; an hour
    history: bool  # the jobs' history goes to cold blocks; default True
    columns: Columns  # of values; default: any value
    key: str | Sequence[str]  # the columns that are the key
    period: str  # how long a generation lasts: "hour", "day" or "month"; default: for ever
    drained: str  # what happens to a drained generation: "delete" (default), "truncate", "reset"
    secure: bool  # True: removed data is overwritten first


class StreamSettings(TypedDict, total=False):
    """Settings of a stream; fixed when it is created."""

    mode: str  # "log" (default) keeps every message, "latest" the newest of each key
    history: bool  # messages that leave the journal go to cold blocks; always so for a log
    block_rows: int  # a block is written when there are this many messages; also its maximum
    block_age: Seconds  # or when the oldest message is this old; a day
    retention: Seconds | None  # blocks with only older messages are removed; default: kept
    retention_bytes: int | None  # the oldest blocks are removed while all are larger; default: kept
    columns: Columns  # of messages; default: any value
    key: str | Sequence[str]  # the columns that are the key


_BOUNDS_US: Final = {
    "lease": (limits.LEASE_US_MIN, limits.LEASE_US_MAX),
    "debounce": (0, limits.PROCESS_AHEAD_US_MAX),
    "block_age": (1, limits.BLOCK_AGE_US_MAX),
    "retention": (0, limits.RETENTION_US_MAX),
}
_WORDS: Final = ("fairness", "period", "drained", "mode")


def encode_job_settings(settings: JobSettings) -> bytes:
    """Returns the bytes that a jobs table is declared with.

    Raises:
        ValueError: if a setting is invalid.
        TypeError: if a setting is unknown, or of a wrong type.
    """
    check_names("a jobs table", settings, JobSettings.__optional_keys__)
    encoded = _encoded(jobs.Settings, settings)
    jobs.decode_settings(encoded)  # what a server would refuse is refused here
    return encoded


def encode_stream_settings(settings: StreamSettings) -> bytes:
    """Like `encode_job_settings`, for a stream."""
    check_names("a stream", settings, StreamSettings.__optional_keys__)
    given = {name: one for name, one in settings.items() if one is not None}
    encoded = _encoded(streams.Settings, given)
    streams.decode_settings(encoded)
    return encoded


def _encoded(kind: type[jobs.Settings | streams.Settings], given: Mapping[str, Any]) -> bytes:
    found = dict(given)
    for name in found.keys() & _BOUNDS_US.keys():
        found[f"{name}_us"] = _duration_us(name, found.pop(name))
    for name in found.keys() & _WORDS:
        found[name] = str(found[name])
    return settings_module.with_columns(kind(**found)).encode()


def _duration_us(name: str, seconds: Seconds) -> int:
    found = delay_us(seconds, name)
    low, high = (bound / jobs.SECOND_US for bound in _BOUNDS_US[name])
    if not low <= found / jobs.SECOND_US <= high:
        raise ValueError(f"{name} is {low:,g} to {high:,.0f} seconds, not {seconds}")
    return found


# -- tables that files declare --------------------------------------------------------------------
#
# Their settings are checked before anything is sent.  All tables are compared with existing ones
# before the first is created, so one that cannot be created leaves everything unchanged.  A table
# with a period may be changed instead: the declaration applies from its next generation on.


# Not declared among the settings of a file.
_APART: Final = frozenset({"columns", "key"})
_UNCHANGEABLE: Final = (
    "only a jobs table with a period can be changed, and it keeps a period, `merge` and `fairness`"
)
_NO_TABLES: Final = 'it declares no table; write one like <table name="pages" model="jobs"/>'

Tables = str | os.PathLike[str] | Iterable[Declaration]


class _Model(NamedTuple):
    """How a model is declared to the server."""

    kind: Kind
    settings: frozenset[str] = frozenset()  # that may be given
    encode: Callable[[Any], bytes] = lambda settings: b""
    fixed: tuple[tuple[str, Any], ...] = ()  # settings that define the model


_SETTINGS: Final[dict[str, list[str]]] = {
    Kind.JOBS: list(JobSettings.__annotations__),
    Kind.STREAM: list(StreamSettings.__annotations__),
}
_JOBS: Final = JobSettings.__optional_keys__ - _APART
_STREAM: Final = StreamSettings.__optional_keys__ - _APART
_MODELS: Final[dict[str, _Model]] = {
    Kind.JOBS: _Model(Kind.JOBS, _JOBS, encode_job_settings),
    "queue": _Model(Kind.JOBS, _JOBS - {"merge"}, encode_job_settings, (("merge", False),)),
    Kind.STREAM: _Model(Kind.STREAM, _STREAM, encode_stream_settings),
    Kind.KV: _Model(Kind.KV),
}


class Made(NamedTuple):
    """The result of a declaration."""

    name: str
    model: str
    outcome: str  # "made"; "same": it existed; "changed": it existed with other settings


def read_file(path: str | os.PathLike[str]) -> list[Declaration]:
    """Returns the tables that a file declares in XML.

    Raises:
        DeclarationError: if something is wrong, including settings; the text lists everything.
        FjordError: if defusedxml is not installed.
    """
    return [declared for declared, _ in creations(path)]


def creations(
    tables: Tables, problems: Problems | None = None
) -> list[tuple[Declaration, CreateTable]]:
    """Returns the commands that create tables, checked as far as possible without the server.

    Raises:
        DeclarationError: if a setting is unknown or invalid, or there are problems already; the
            text lists all of them.
    """
    problems = Problems() if problems is None else problems
    declarations = _read(tables, problems) if isinstance(tables, str | os.PathLike) else tables
    found = [(one, _creation(one, problems)) for one in declarations]
    problems.check()
    return found


def _read(path: str | os.PathLike[str], problems: Problems) -> list[Declaration]:
    source = os.fspath(path)
    if os.path.splitext(source)[1].lower() not in ("", ".xml"):
        raise DeclarationError(f"{source}: declare tables in XML, in a file that ends with .xml")
    try:
        with open(source, "rb") as file:
            data = file.read(declaration.FILE_BYTES_MAX + 1)
    except OSError as error:
        raise DeclarationError(f"{source}: {error.strerror or error}") from error
    from fjord.declared import xml

    found = xml.read(data, source, problems)
    if not found and not problems:
        problems.add(Location(source), _NO_TABLES)
    return found


def steps(tables: Tables, *, change: bool = False, dry_run: bool = False) -> Steps[list[Made]]:
    """Creates missing tables, and compares existing ones with their declarations.

    Raises:
        DeclarationError: if a declaration is wrong.
        ExistsError: if an existing table differs and may not, or cannot, be changed; then no table
            is created.
    """
    wanted = creations(tables)
    there: dict[str, TableInfo] = {one.name: one for one in (yield tables_call())}
    changed: list[CreateTable] = []
    refused: list[str] = []
    for declared, command in wanted:
        found = there.get(declared.name)
        differing = _differing_from_file(declared, command, found) if found else []
        if found and differing and change and _can_change(command, found):
            changed.append(replace(command, changes=True))
        elif differing:
            text = f"table {declared.name} already exists and differs: {'; '.join(differing)}"
            why = f" ({_UNCHANGEABLE})" if change else ""
            refused.append(f"{declared.place}: {text}{why}")
    if refused:
        raise ExistsError(Code.EXISTS, "; ".join(refused[: declaration.PROBLEMS_MAX]))
    new = [command for _, command in wanted if command.name not in there]
    # Changes can be refused, so they come first.
    for command in () if dry_run else (*changed, *new):
        yield Call(command, done)
    outcomes = {one.name: "changed" for one in changed} | {one.name: "made" for one in new}
    return [Made(one.name, one.model, outcomes.get(one.name, "same")) for one, _ in wanted]


def declaration_of(table: TableInfo) -> Declaration:
    """Returns the declaration of an existing table.

    Raises:
        FjordError: if its kind or settings are those of a later version.
    """
    try:
        known = _MODELS[table.kind]
        settings = settings_of(table.kind, table.settings)
    except (KeyError, ValueError) as error:
        raise FjordError(f"table {table.name} is not known in this version: {error}") from error
    if settings is None:
        return Declaration(name=table.name, model=table.kind)
    declared: Schema = settings.declared
    given = _given(known, settings)
    model = table.kind
    if given.get("merge") is False and not declared.key:
        model = "queue"
        del given["merge"]
    indexes = [Index("key", declared.key)] if declared.key and model == Kind.JOBS else []
    return Declaration(
        name=table.name,
        model=model,
        columns=declared.columns,
        key=declared.key,
        indexes=tuple(indexes),
        settings=given,
    )


# -- settings -------------------------------------------------------------------------------------


def _creation(table: Declaration, problems: Problems) -> CreateTable:
    model = _MODELS.get(table.model, _Model(Kind.KV))
    if table.model not in _MODELS:
        problems.add(table.place, f"there is no model {declaration.shown(table.model)}")
    settings = dict(table.settings)
    for name in sorted(settings.keys() - model.settings):
        del settings[name]
        has = f"there are {', '.join(sorted(model.settings))}" if model.settings else "it has none"
        text = f"a table of model {table.model} has no setting {declaration.shown(name)}; {has}"
        problems.add(_place(table, name), text)
    # Some settings are valid only together, so all are tried, without those found wrong so far.
    while True:
        wrong = _wrong(table, model, settings)
        if wrong is None:
            break
        name, text = wrong
        problems.add(_place(table, name), text)
        if name not in settings:
            break
        del settings[name]
    encoded = b"" if wrong else _encode(table, model, settings)
    return CreateTable(name=table.name, kind=model.kind.number, settings=encoded)


def _wrong(table: Declaration, model: _Model, settings: dict[str, Any]) -> tuple[str, str] | None:
    """Returns an invalid setting and why; no name if only a combination is invalid."""
    text = _refusal(table, model, settings)
    if text is None:
        return None
    alone = (name for name in settings if _refusal(table, model, {name: settings[name]}) == text)
    return next(alone, ""), text


def _refusal(table: Declaration, model: _Model, settings: dict[str, Any]) -> str | None:
    try:
        _encode(table, model, settings)
    except (ValueError, TypeError, OverflowError) as error:
        return declaration.plain(str(error))
    return None


def _encode(table: Declaration, model: _Model, settings: dict[str, Any]) -> bytes:
    apart = {"columns": table.columns, "key": table.key} if table.columns else {}
    return model.encode({**settings, **dict(model.fixed), **apart})


def _place(table: Declaration, setting: str) -> Location:
    return table.setting_places.get(setting, table.place)


def _given(model: _Model, settings: Any) -> dict[str, Any]:
    """Returns the settings that differ from the defaults, as users give them."""
    usual = type(settings)()
    found: dict[str, Any] = {}
    for name in (one.name for one in fields(settings)):
        value = getattr(settings, name)
        shown = name.removesuffix("_us")
        if value == getattr(usual, name) or shown not in model.settings:
            continue
        plain = str(value) if isinstance(value, str) else value  # not as an enum member
        found[shown] = _seconds(value) if shown != name else plain
    return found


def _seconds(duration_us: int) -> int | float:
    seconds, rest = divmod(duration_us, jobs.SECOND_US)
    return duration_us / jobs.SECOND_US if rest else seconds


# -- comparing with existing tables ---------------------------------------------------------------


def _differing_from_file(
    declared: Declaration, command: CreateTable, there: TableInfo
) -> list[str]:
    if there.kind != _MODELS[declared.model].kind:
        return [f"it is a {there.kind} table, not {declared.model}"]
    # The columns and the key first.
    names = sorted(_SETTINGS.get(there.kind, ()), key=lambda name: name not in _APART)
    return _differing(there, command.settings, names, declaration.word)


def _differing(
    there: TableInfo, wanted: bytes, names: Iterable[str], word: Callable[[Any], str] = str
) -> list[str]:
    """Says how a table differs from the wanted settings."""
    has, wants = (settings_of(there.kind, data) for data in (there.settings, wanted))
    if has is None or wants is None:
        return []
    found: list[str] = []
    for name in names:
        if name == "columns":
            found += differing_columns(has.declared, wants.declared)
        elif name == "key":
            found += differing_key(has.declared, wants.declared)
        elif (one := _setting(has, name)) != (other := _setting(wants, name)):
            found.append(f"{name} is {word(one) or 'none'}, not {word(other) or 'none'}")
    return found


def _setting(settings: Any, name: str) -> Any:
    if hasattr(settings, name):
        return getattr(settings, name)
    return _seconds(getattr(settings, f"{name}_us"))


def _can_change(command: CreateTable, there: TableInfo) -> bool:
    if there.kind != Kind.JOBS or command.kind != Kind.JOBS.number:
        return False
    old, new = (jobs.decode_settings(one) for one in (there.settings, command.settings))
    keeps = all(getattr(old, name) == getattr(new, name) for name in jobs.FIXED)
    return bool(keeps and old.period and new.period)


# -------------------------------------------------------------------------------------------------
#
# Declaring a table before its first use.
#
# A missing table is created with the given settings.  Of an existing one, only the given settings
# are compared.


_COLUMNS_MAX: Final = 20  # that an error names


@dataclass(frozen=True, slots=True)
class ExpectedTable:
    """A declaration to be made before a table's first use; repeated if it failed."""

    command: CreateTable
    given: Collection[str]  # the names of the settings that are given

    def steps(self) -> Steps[None]:
        """Creates the table, or compares the existing one.

        Raises:
            ExistsError: if it differs; the text says how.
        """
        try:
            yield Call(self.command, done)
        except ExistsError:
            there: TableInfo = yield table_call(self.command.name)
            differing = _differing(there, self.command.settings, self.given)
            if differing:
                text = f"table {there.name} exists with other settings: {'; '.join(differing)}"
                raise ExistsError(Code.EXISTS, text) from None


def expected(name: str, kind: Kind, settings: JobSettings | StreamSettings) -> ExpectedTable:
    encoded = _MODELS[kind].encode(settings)
    command = CreateTable(name=name, kind=kind.number, settings=encoded)
    return ExpectedTable(command, settings.keys())


def differing_columns(there: Schema, wanted: Schema) -> list[str]:
    has = {column.name: _words(column) for column in there.columns}
    wants = {column.name: _words(column) for column in wanted.columns}
    found = [f"it has no column {name}" for name in wants.keys() - has.keys()]
    found += [f"it has a column {name}" for name in has.keys() - wants.keys()]
    found += [
        f"column {name} is {has[name]}, not {wants[name]}"
        for name in has.keys() & wants.keys()
        if has[name] != wants[name]
    ]
    if not found and there.names != wanted.names:
        names = [", ".join(one.names[:_COLUMNS_MAX]) for one in (there, wanted)]
        return [f"its columns are {names[0]}, not {names[1]}"]
    more = [f"and {len(found) - _COLUMNS_MAX} more"] if len(found) > _COLUMNS_MAX else []
    return sorted(found)[:_COLUMNS_MAX] + more


def differing_key(there: Schema, wanted: Schema) -> list[str]:
    if there.key == wanted.key:
        return []
    has, wants = (", ".join(key) or "none" for key in (there.key, wanted.key))
    return [f"its key is {has}, not {wants}"]


def _words(column: Column) -> str:
    return f"{column.type}{' and required' if column.required else ''}"
