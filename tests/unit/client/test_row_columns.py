"""Declared columns of messages, without a dict for each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fjord
from fjord import jobs, ops, values
from fjord.client.messages import RowColumns
from fjord.client.schemas import Schemas, UnknownSchemaError
from fjord.columns import Strings
from fjord.declared import schema
from fjord.declared.rows import Rows
from fjord.errors import LocalProtocolError, RemoteProtocolError
from fjord.values import Type
from tests.unit.client import test_schemas as samples

PAGES: Any = {"uri": ("string", True), "depth": "uint8"}
LISTED: list[dict[str, Any]] = [{"uri": "a", "depth": 1}, {"uri": "b", "depth": None}]
ROW = bytes((values.ROW,))
TOMBSTONE = bytes((ops.TOMBSTONE,))
KNOWN = samples.of(samples.table(PAGES))


def encoded(*rows: dict[str, Any], number: int = 1) -> list[bytes]:
    return Rows(schema.read(PAGES, number=number)).encode(rows)[0]


def columns(*parts: tuple[bytes, list[bytes]], known: Schemas = KNOWN) -> RowColumns:
    return RowColumns("t", [(types, Strings.of(rows)) for types, rows in parts], known)


def test_a_tombstone_has_no_value_in_any_column() -> None:
    first, second = encoded(*LISTED)
    found = columns(
        (TOMBSTONE, [b""]),
        (ROW + TOMBSTONE + ROW, [first, b"", second]),
        (TOMBSTONE * 2, [b""] * 2),
    )
    assert found.column("uri") == [None, "a", None, "b", None, None]
    alone = columns((TOMBSTONE * 2, [b"", b""]))
    assert (alone.names, alone.column("whatever")) == ([], [None, None])
    assert (columns().names, columns().column("whatever")) == ([], [])


def test_what_cannot_be_read_as_columns_is_refused() -> None:
    rows = encoded(*LISTED)
    with pytest.raises(LocalProtocolError, match="no column 'url'; there are uri, depth"):
        columns((ROW * 2, rows)).column("url")
    with pytest.raises(LocalProtocolError, match="stream t has no declared columns; its messages"):
        columns((bytes((Type.BUFFER,)), [b"a"]))
    with pytest.raises(UnknownSchemaError):
        columns((ROW * 2, rows), known=Schemas("t", jobs.decode_settings))
    with pytest.raises(RemoteProtocolError, match="schema 2"):
        columns((ROW * 3, [*rows, *encoded({"uri": "c"}, number=2)]))
    with pytest.raises(RemoteProtocolError, match="too short"):
        columns((ROW * 3, [*rows, rows[0][:4]]))
    no_text = rows[0][:-1] + b"\xff"
    with pytest.raises(RemoteProtocolError, match="column uri of a row"):
        columns((ROW, [no_text])).column("uri")


def test_a_stream_is_read_as_columns_and_written_again(tmp_path: Path) -> None:
    with fjord.open(tmp_path) as db:
        hits = db.create_stream("hits", columns=PAGES, key="uri", mode="latest")
        assert hits.read().value_columns == {}
        assert hits.read().column("uri") == []
        hits.append_many([*LISTED, {"uri": "c", "depth": 3}])
        hits.append({"uri": "d"})
        batch = db.stream("hits").read()
        assert batch.column("depth") == [1, None, 3, None]
        assert batch.value_columns == {"uri": list("abcd"), "depth": [1, None, 3, None]}
        copy = db.create_stream("copy", columns=PAGES)
        copy.append_many(batch.value_columns)
        assert copy.read().values == batch.values
        hits.delete("b")
        assert hits.read().column("uri") == ["a", "c", "d", None]
        db.stream("plain").append(b"a")
        with pytest.raises(LocalProtocolError, match="stream plain has no declared columns"):
            db.stream("plain").read().column("uri")
