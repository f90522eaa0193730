"""The columns of tables: asked for when they are needed, and what was begun is done again."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from fjord import jobs, values
from fjord.client.calls import Call, done
from fjord.client.declared_tables import TableInfo, encode_job_settings
from fjord.client.entries import Encoded, decode_value
from fjord.client.schemas import Schemas, UnknownSchemaError
from fjord.commands import ListTables, Nop
from fjord.declared import schema
from fjord.errors import LocalProtocolError, RefusedError

PAGES: Any = {"uri": ("string", True), "depth": "uint8"}
ROW = {"uri": "a", "depth": 3}
ROW_TYPE = bytes((values.ROW,))


def table(columns: Any = None, key: str = "", number: int = 1, earlier: Any = ()) -> TableInfo:
    """Returns a table as the server tells of it."""
    given: Any = {"columns": columns or {}, "key": key or ()}
    settings = jobs.decode_settings(encode_job_settings(given))
    settings = jobs.Settings(
        columns=settings.columns, key=settings.key, schema=number, earlier=earlier
    )
    return TableInfo(name="t", kind="jobs", id=7, settings=settings.encode())


def of(*told: TableInfo) -> Schemas:
    """Returns what has learned from these answers, the last one last."""
    schemas = Schemas("t", jobs.decode_settings)
    for one in told:
        assert run(schemas.learning(), one) == ([ListTables(name="t")], None)
    return schemas


def run(steps: Generator[Call[Any], Any, Any], *answers: Any) -> tuple[list[object], Any]:
    """Runs steps whose calls are answered by these; returns the commands, and the result."""
    sent: list[object] = []
    left = list(answers)
    try:
        call = next(steps)
        while True:
            sent.append(call.command)
            answer = left.pop(0)
            call = steps.throw(answer) if isinstance(answer, Exception) else steps.send(answer)
    except StopIteration as end:
        assert not left
        return sent, end.value


def builder(schemas: Schemas, row: Any) -> Callable[[], Call[Any]]:
    def build() -> Call[Any]:
        schemas.encode([row])
        return Call(Nop(), done)

    return build


ASK, SEND = ListTables(name="t"), Nop()


# -- asking ---------------------------------------------------------------------------------------


def test_columns_are_asked_for_once() -> None:
    schemas = of()
    assert run(schemas.writing(builder(schemas, ROW)), table(PAGES), "written") == (
        [ASK, SEND],
        "written",
    )
    assert run(schemas.writing(builder(schemas, ROW)), "written") == ([SEND], "written")
    assert schemas.names == ["uri", "depth"]


def test_a_row_that_does_not_fit_may_fit_by_now() -> None:
    schemas = of(table(PAGES))
    row = {**ROW, "who": "me"}
    sent, _ = run(
        schemas.writing(builder(schemas, row)), table({**PAGES, "who": "string"}, number=2), None
    )
    assert sent == [ASK, SEND]
    with pytest.raises(LocalProtocolError, match="there is no column 'what'"):
        run(
            schemas.writing(builder(schemas, {**ROW, "what": 1})),
            table({**PAGES, "who": "string"}, number=2),
        )


def test_what_is_read_is_asked_for_again() -> None:
    schemas = of()
    (data,), _ = of(table(PAGES)).encode([ROW])
    call: Call[Any] = Call(Nop(), lambda _: schemas.decode(values.ROW, data))
    steps = schemas.reading(call)
    assert next(steps) is call
    with pytest.raises(UnknownSchemaError):
        call.read(None)  # type: ignore[arg-type]
    assert steps.throw(UnknownSchemaError()).command == ASK
    assert steps.send(table(PAGES)) is call
    assert call.read(None) == ROW  # type: ignore[arg-type]


# -- writing --------------------------------------------------------------------------------------


def test_rows_and_columns_are_the_same() -> None:
    schemas = of(table(PAGES, "uri"))
    found, keys = schemas.encode([ROW, {"uri": "b"}])
    assert (found, keys) == schemas.encode_columns({"uri": ["a", "b"], "depth": [3, None]})
    assert keys == [b"a", b"b"]
    assert isinstance(found, Encoded)
    assert isinstance(keys, Encoded)
    assert schemas.has_key
    assert not of(table(PAGES)).has_key
    assert of(table(PAGES)).encode([ROW])[1] == []


# -- reading --------------------------------------------------------------------------------------


def test_rows_of_several_schemas_and_values_are_read_together() -> None:
    old = of(table(PAGES))
    new = of(table({**PAGES, "who": "string"}, number=2))
    (first,), _ = old.encode([ROW])
    (second,), _ = new.encode([{"uri": "b", "who": "me"}])
    types = ROW_TYPE + b"\2" + ROW_TYPE + b"\xff"
    column = [first, b"text", second, b""]

    def plain(type_: int, data: bytes) -> Any:
        return None if type_ == 0xFF else decode_value(type_, data)

    assert new.lacks(types, column)
    with pytest.raises(UnknownSchemaError):
        new.decode_all(types, column, plain)
    with pytest.raises(UnknownSchemaError):  # so it is asked for before the next row is written
        new.encode([ROW])
    triples = tuple((one.name, one.type, one.required) for one in schema.read(PAGES).columns)
    both = of(table({**PAGES, "who": "string"}, number=2, earlier=((1, triples),)))
    assert not both.lacks(types, column)
    assert both.decode_all(types, column, plain) == [
        ROW,
        "text",
        {"uri": "b", "depth": None, "who": "me"},
        None,
    ]
    assert both.decode_all(ROW_TYPE * 2, [first, first]) == [ROW, ROW]
    assert both.decode(values.Type.STRING, b"text") == "text"
    assert both.decode_all(b"", []) == []


def test_values_without_rows_lack_nothing() -> None:
    assert not of().lacks(b"\1\2", [b"a", b"b"])
    assert of().lacks(b"\1" + ROW_TYPE, [b"a", b"\1\0"])


def test_bytes_that_are_no_row_are_the_fault_of_the_server() -> None:
    with pytest.raises(UnknownSchemaError):
        of(table(PAGES)).decode(values.ROW, b"")
    with pytest.raises(Exception, match="a row is too short") as caught:
        of(table(PAGES)).decode(values.ROW, b"\1\0")
    assert not isinstance(caught.value, RefusedError)
