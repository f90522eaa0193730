"""Tables declared in XML: what is read, what is wrong with it, and what would do harm."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fjord.declared import xml
from fjord.declared.declaration import FILE_BYTES_MAX, Declaration, Index
from fjord.declared.schema import Column
from fjord.errors import DeclarationError, FjordError
from tests.unit.declared.declarations import MANY

PAGES = """<?xml version="1.0" encoding="utf-8"?>
<context>
  <table name="pages" model="jobs" row-key="uri, depth">
    <description>
      Pages that are
      to be fetched
    </description>
    <setting name="lease">60</setting>
    <setting name="fairness"> domain </setting>
    <setting name="history">false</setting>
    <schema>
      <column name="uri" type="string" required="true"><description>where</description></column>
      <column name="depth" type="uint8" required="true"/>
      <column name="seen" type="time_seconds"/>
    </schema>
    <secondary-index name="key"><column name="uri"/><column name="depth"/></secondary-index>
    <secondary-index name="expiration"/>
  </table>
  <table name="mails" model="queue"/>
</context>
"""


def problems(text: str | bytes) -> list[str]:
    """Returns what is wrong with a file, less its name."""
    with pytest.raises(DeclarationError) as raised:
        xml.read(text.encode() if isinstance(text, str) else text, "f.xml")
    assert all(line.startswith("f.xml:") for line in raised.value.problems)
    return [line.removeprefix("f.xml:") for line in raised.value.problems]


def fed(text: str | bytes, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns which elements were looked at until a file was refused."""
    seen: list[str] = []
    start = xml._Reader.startElement

    def watch(self: Any, name: str, attrs: Any) -> None:
        seen.append(name)
        start(self, name, attrs)

    monkeypatch.setattr(xml._Reader, "startElement", watch)
    assert problems(text)
    return seen


@pytest.mark.req("SJ-30")
def test_a_file_declares_tables() -> None:
    pages, mails = xml.read(PAGES.encode(), "f.xml")
    assert pages == Declaration(
        name="pages",
        model="jobs",
        columns=(
            Column("uri", "string", True),
            Column("depth", "uint8", True),
            Column("seen", "time_seconds"),
        ),
        key=("uri", "depth"),
        indexes=(Index("key", ("uri", "depth")), Index("expiration")),
        settings={"lease": 60, "fairness": "domain", "history": False},
        description="Pages that are to be fetched",
    )
    assert mails == Declaration(name="mails", model="queue")
    assert str(pages.place) == "f.xml:3:3"
    assert str(pages.setting_places["lease"]) == "f.xml:8:5"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_are_told_apart(encoding: str) -> None:
    text = PAGES.partition("\n")[2].replace("fetched", "ge\u00f6ffnet \U0001f600")
    pages, _ = xml.read(text.encode(encoding), "f.xml")
    assert pages.description == "Pages that are to be ge\u00f6ffnet \U0001f600"


@pytest.mark.req("SJ-30")
@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("<context>", "<tables>", 2, "a file is a context or a table, not 'tables'"),
        ('model="jobs"', 'model="jobs" size="4"', 3, "table has no attribute 'size'; there may be"),
        ('model="jobs"', "", 3, "table needs the attribute model"),
        ("<description>", "<block-size>4</block-size><description>", 4, "no 'block-size' in it"),
        ("Pages that", "<b>Pages</b> that", 5, "description has no 'b' in it; there may be noth"),
        ('name="lease"', "", 8, "setting needs the attribute name"),
        ("<schema>", "<schema>text", 11, "schema has no text of its own, but 'text'"),
        ("</schema>", "</schema><schema/>", 15, "table has more than 1 of schema"),
        ('type="uint8"', 'type="uint9"', 13, "there is no type 'uint9'; there are boolean"),
        ('type="uint8" required="true"', 'type="uint8" required="1"', 13, "true or false, not 1"),
        ('<column name="depth"/>', "", 16, "index key has the columns of row-key"),
        ('name="mails"', 'name="pages"', 19, "table pages was already declared in line 3"),
        ("</context>", "", 21, "this is not valid XML: no element found"),
        ("</table>\n", "</tabel>\n", 18, "this is not valid XML: mismatched tag"),
        ("fetched", "&fetched;", 6, "this is not valid XML: undefined entity"),
        ("fetched", "&#xD800;", 6, "this is not valid XML: reference to invalid character number"),
        ("fetched", "\x00", 6, "this is not valid XML: not well-formed"),
        ("fetched", "\x1b[2J", 6, "this is not valid XML: not well-formed"),
        ("utf-8", "utf-7", 1, "its encoding cannot be read, use UTF-8"),
        ("utf-8", "no-such", 1, "its encoding cannot be read, use UTF-8"),
        ("utf-8", "utf-16", 1, "this is not valid XML: encoding specified"),
    ],
)
def test_what_is_wrong_is_said_with_line_and_column(
    old: str, new: str, line: int, said: str
) -> None:
    assert old in PAGES
    first = problems(PAGES.replace(old, new, 1))[0]
    assert first.split(":")[0] == str(line)
    assert int(first.split(":")[1]) >= 1
    assert said in first


# -- harm -----------------------------------------------------------------------------------------

LAUGHS = "".join(
    f'<!ENTITY a{at} "{"&a" + str(at - 1) + ";" if at else "ha"}{"x" * 8}">' for at in range(30)
)


@pytest.mark.req("SJ-30")
@pytest.mark.parametrize(
    "text",
    [
        f"<!DOCTYPE context [{LAUGHS}]><context>&a29;</context>",
        f'<!DOCTYPE context [<!ENTITY a "{"x" * 60_000}">]><context>{"&a;" * 60_000}</context>',
        '<!DOCTYPE context [<!ENTITY a SYSTEM "file:///etc/hostname">]><context>&a;</context>',
        '<!DOCTYPE context [<!ENTITY % a SYSTEM "http://127.0.0.1:9/a.dtd"> %a;]><context/>',
        '<!DOCTYPE context SYSTEM "http://127.0.0.1:9/a.dtd"><context/>',
        '<!DOCTYPE context PUBLIC "-//a" "a.dtd" [<!ATTLIST table model CDATA "kv">]><context/>',
        "<!DOCTYPE context><context/>",
    ],
)
def test_a_document_type_is_refused_where_it_begins(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (only,) = problems(text)
    assert only.startswith("1:")
    assert "a document type is not allowed, nor are entities" in only
    assert fed(text, monkeypatch) == []  # nothing behind it was looked at


@pytest.mark.req("SJ-30")
@pytest.mark.parametrize("name", ["context", "a", "table"])
def test_deep_nesting_ends_the_reading(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"<{name}>" * 100_000
    assert "elements are more than 16 deep in each other" in problems(text)[-1]
    assert len(fed(text, monkeypatch)) == xml.DEPTH_MAX + 1


@pytest.mark.req("SJ-30")
def test_a_large_file_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xml, "_parser", None)  # calling it would be an error
    for size in (FILE_BYTES_MAX + 1, 10_000_000):
        (only,) = problems(b"<context>" + b" " * (size - 9))
        assert only == " a file of declarations has at most 1 MiB"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('<table name="t" model="kv"/>' * 1001, "context has more than 1,000 of table"),
        (
            '<table name="t" model="jobs"><schema>'
            + "".join(f'<column name="c{at}" type="int8"/>' for at in range(3000))
            + "</schema></table>",
            "schema has more than 256 of column",
        ),
        (
            '<table name="t" model="jobs">' + '<setting name="a"/>' * 3000 + "</table>",
            "table has more than 64 of setting",
        ),
    ],
)
def test_what_there_is_too_much_of_is_not_kept(text: str, said: str) -> None:
    assert any(said in line for line in problems(f"<context>{text}</context>"))


def test_without_defusedxml_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "defusedxml", None)
    with pytest.raises(FjordError, match=r"needs defusedxml: pip install 'fjord-journal\[xml\]'"):
        xml.read(b"<context/>", "f.xml")


# -- any file -------------------------------------------------------------------------------------


@pytest.mark.req("SJ-30")
@settings(max_examples=40)
@given(MANY)
def test_what_is_written_is_read_again(tables: list[Declaration]) -> None:
    text = xml.write(tables)
    assert xml.read(text.encode(), "f.xml") == tables
    assert xml.read(text.partition("\n")[2].encode("utf-16"), "f.xml") == tables


@pytest.mark.parametrize("text", ["\x00", "\x1b", "\ud800", "\ufffe"])
def test_what_xml_has_no_character_for_is_not_written(text: str) -> None:
    with pytest.raises(ValueError, match="XML has no character"):
        xml.write([Declaration(name="t", model="kv", description=text)])


@st.composite
def mutants(draw: st.DrawFn) -> bytes:
    """Returns a file that was cut, doubled and overwritten in places."""
    data = bytearray(xml.write(draw(MANY)).encode() if draw(st.booleans()) else PAGES.encode())
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(data)))
        end = min(len(data), at + draw(st.integers(0, 40)))
        piece = draw(
            st.binary(max_size=8)
            | st.just(bytes(data[at:end]) * 2)
            | st.sampled_from([b"<", b">", b"</", b"&", b'"', b"<!DOCTYPE x>", b"<![CDATA[", b"\0"])
            | st.sampled_from([b"<table>", b"<?pi?>", b"<!--", b"\xff\xfe", b"encoding='utf-32'"])
        )
        data[at:end] = piece
    return bytes(data)


@pytest.mark.req("SJ-30")
@given(mutants() | st.binary(max_size=200))
@example(b"")
@example(b"\xff\xfe")
@example(b"\xfe\xff\xd8\x00")
@example("<context/>".encode("utf-32"))
def test_any_file_is_read_or_explained(data: bytes) -> None:
    said: list[str] = []
    try:
        found = xml.read(data, "f.xml")
    except DeclarationError as error:
        said = error.problems or ["nothing was said"]
    else:
        assert xml.read(xml.write(found).encode(), "f.xml") == found
    assert len(said) <= 21
    assert all(line.startswith("f.xml:") and line.isprintable() for line in said)


@pytest.mark.req("SJ-30")
def test_no_file_is_opened_for_an_entity(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    text = f'<!DOCTYPE a [<!ENTITY b SYSTEM "{secret.as_uri()}">]><context>&b;</context>'
    assert "hidden" not in "".join(problems(text))
