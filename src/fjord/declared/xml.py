"""Tables declared in XML.

    context = table ...                    a file is a context, or one table
    table = @name @model [@row-key], description?, setting ..., schema?, secondary-index ...
    setting = @name, its value as text
    schema = column ...
    column = @name @type [@required], description?
    secondary-index = @name, column(@name) ...

A file is not trusted: it has a largest size and depth, and no document type, so no entities.  It
is parsed at once, since `FILE_BYTES_MAX` is small; what a table may not have is passed over, so
that all that is wrong with a file is said at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl

from fjord.declared import declaration
from fjord.declared.declaration import Declaration, Draft, Location, Problems, shown
from fjord.declared.schema import COLUMNS_MAX
from fjord.errors import FjordError

DEPTH_MAX: Final = 16
SETTINGS_MAX: Final = 64  # in a declaration; more than there are
# Characters that no XML file can hold, not even escaped.
_NO_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPED: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}
    | {space: f"&#{ord(space)};" for space in "\t\n\r"}
)


class _Element(NamedTuple):
    """The allowed attributes and contents of an element."""

    needed: tuple[str, ...] = ()  # attributes
    optional: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()  # elements
    has_text: bool = False
    count_max: int = 1  # in the element around it; more are refused, and not kept


_TABLE: Final = _Element(
    ("name", "model"),
    ("row-key",),
    ("description", "setting", "schema", "secondary-index"),
    count_max=declaration.TABLES_MAX,
)
_DESCRIPTION: Final = _Element(has_text=True)
# By the element around it, and its own name.
_ELEMENTS: Final[dict[tuple[str, str], _Element]] = {
    ("", "context"): _Element(inside=("table",)),
    ("", "table"): _TABLE,
    ("context", "table"): _TABLE,
    ("table", "description"): _DESCRIPTION,
    ("table", "setting"): _Element(("name",), has_text=True, count_max=SETTINGS_MAX),
    ("table", "schema"): _Element(inside=("column",)),
    ("schema", "column"): _Element(
        ("name", "type"), ("required",), ("description",), count_max=COLUMNS_MAX
    ),
    ("column", "description"): _DESCRIPTION,
    ("table", "secondary-index"): _Element(
        ("name",), inside=("column",), count_max=declaration.INDEXES_MAX
    ),
    ("secondary-index", "column"): _Element(("name",), count_max=COLUMNS_MAX),
}


def read(data: bytes, source: str, problems: Problems | None = None) -> list[Declaration]:
    """Returns the tables that a file declares.

    Args:
        data: the file, in any encoding that it says, or UTF-8.
        source: the file's name, for errors.
        problems: collects errors, if given, instead of raising them.

    Raises:
        DeclarationError: if something is wrong; the text lists every problem with its place.
        FjordError: if defusedxml is not installed.
    """
    declaration.check_size(source, len(data))
    noted = Problems() if problems is None else problems
    reader = _Reader(source, noted)
    _parse(data, reader)
    found = declaration.checked(map(_draft, reader.tables()), noted)
    if problems is None:
        noted.check()
    return found


def write(tables: Iterable[Declaration]) -> str:
    """Returns the file that declares tables.

    Raises:
        ValueError: if a text has characters that XML does not allow.
    """
    lines = ['<?xml version="1.0" encoding="utf-8"?>', "<context>"]
    for table in tables:
        lines += _table_lines(table)
    return "\n".join([*lines, "</context>", ""])


# -- parsing --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Node:
    """An element."""

    name: str
    place: Location
    attributes: dict[str, str]
    allowed: _Element
    text: list[str] = field(default_factory=list)
    inside: list[_Node] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    has_stray_text: bool = False
    is_whole: bool = False

    @property
    def value(self) -> str:
        return declaration.plain("".join(self.text))


class _StopError(Exception):
    """Stops the parser."""


class _Reader(ContentHandler):
    """Builds nodes of known elements, and reports unknown ones."""

    def __init__(self, source: str, problems: Problems) -> None:
        super().__init__()
        self._source = source
        self._problems = problems
        self._locator: Any = None
        self._root: _Node | None = None
        self._open: list[_Node] = []
        self._depth = 0
        self._passed_over = 0  # depth at which something unknown began; 0: nothing did

    def tables(self) -> list[_Node]:
        """Returns the tables that were read completely."""
        if self._root is None:
            return []
        found = [self._root] if self._root.name == "table" else self._root.inside
        return [node for node in found if node.is_whole]

    def fail(self, text: str, at: Any = None) -> None:
        self._problems.add(self._place(at or self._locator), text)

    def _place(self, at: Any) -> Location:
        return Location(self._source, at.getLineNumber(), at.getColumnNumber() + 1)

    # What the parser calls; the names are its own.

    def setDocumentLocator(self, locator: Any) -> None:  # noqa: N802
        self._locator = locator

    def startElement(self, name: str, attrs: AttributesImpl) -> None:  # noqa: N802
        self._depth += 1
        if self._depth > DEPTH_MAX:
            self.fail(f"elements are more than {DEPTH_MAX} deep in each other")
            raise _StopError
        if self._passed_over:
            return
        node = self._node(name, attrs)
        if node is None:
            self._passed_over = self._depth
            return
        if self._open:
            self._open[-1].inside.append(node)
        else:
            self._root = node
        self._open.append(node)

    def endElement(self, name: str) -> None:  # noqa: N802
        if self._passed_over == self._depth:
            self._passed_over = 0
        elif not self._passed_over:
            self._open.pop().is_whole = True
        self._depth -= 1

    def characters(self, content: str) -> None:
        if self._passed_over:
            return
        node = self._open[-1]
        if node.allowed.has_text:
            node.text.append(content)
        elif content.strip() and not node.has_stray_text:
            node.has_stray_text = True
            self.fail(f"{node.name} has no text of its own, but {shown(content.strip())}")

    def _node(self, name: str, attrs: AttributesImpl) -> _Node | None:
        """Returns an element if it is allowed here, and not too often."""
        around = self._open[-1] if self._open else None
        allowed = _ELEMENTS.get((around.name if around else "", name))
        if allowed is None:
            if around is None:
                self.fail(f"a file is a context or a table, not {shown(name)}")
            else:
                inside = ", ".join(around.allowed.inside) or "nothing"
                self.fail(f"{around.name} has no {shown(name)} in it; there may be {inside}")
            return None
        if around is not None:
            count = around.counts[name] = around.counts.get(name, 0) + 1
            if count > allowed.count_max:
                if count == allowed.count_max + 1:
                    self.fail(f"{around.name} has more than {allowed.count_max:,} of {name}")
                return None
        attributes = self._attributes(name, allowed, attrs)
        return _Node(name, self._place(self._locator), attributes, allowed)

    def _attributes(self, name: str, allowed: _Element, attrs: AttributesImpl) -> dict[str, str]:
        given = dict(attrs.items())
        known = (*allowed.needed, *allowed.optional)
        for unknown in sorted(given.keys() - set(known)):
            there = f"there may be {', '.join(known)}" if known else "it has none"
            self.fail(f"{name} has no attribute {shown(unknown)}; {there}")
        for missing in allowed.needed:
            if missing not in given:
                self.fail(f"{name} needs the attribute {missing}")
        return given


def _parse(data: bytes, reader: _Reader) -> None:
    parser, refusals = _parser()
    parser.setContentHandler(reader)
    reader.setDocumentLocator(parser)
    try:
        parser.feed(data)  # all of it: data fed in pieces may be parsed repeatedly
        parser.close()
    except _StopError:
        pass  # why is among the problems
    except refusals:
        reader.fail("a document type is not allowed, nor are entities; leave <!DOCTYPE out")
    except SAXParseException as error:
        reader.fail(f"this is not valid XML: {error.getMessage()}", error)
    except (LookupError, ValueError) as error:
        reader.fail(f"its encoding cannot be read, use UTF-8: {declaration.plain(str(error))}")


def _parser() -> tuple[Any, type[Exception]]:
    """Returns a parser that refuses entities, and the error that it raises for them."""
    try:
        from defusedxml import DefusedXmlException, expatreader
    except ModuleNotFoundError as error:
        text = f"reading XML needs {error.name}: pip install 'fjord-journal[xml]'"
        raise FjordError(text) from error
    return expatreader.create_parser(forbid_dtd=True), DefusedXmlException


# -- meaning --------------------------------------------------------------------------------------


def _draft(table: _Node) -> Draft:
    key = table.attributes.get("row-key")
    draft = Draft(
        place=table.place,
        name=table.attributes.get("name"),
        model=table.attributes.get("model"),
        key=() if key is None else [name.strip() for name in key.split(",")],
    )
    for node in table.inside:
        name = node.attributes.get("name")
        if node.name == "description":
            draft.description = node.value
        elif node.name == "schema":
            draft.columns += _columns(node)
        elif node.name == "setting" and name is not None:
            draft.settings.append((node.place, name, declaration.scalar(node.value)))
        elif node.name == "secondary-index" and name is not None:
            columns = [column.attributes.get("name", "") for column in node.inside]
            draft.indexes.append((node.place, name, columns))
    return draft


def _columns(schema: _Node) -> Iterator[tuple[Location, str, str, object]]:
    for column in schema.inside:
        given = column.attributes
        if {"name", "type"} <= given.keys():
            required = declaration.scalar(given.get("required", "false"))
            yield column.place, given["name"], given["type"], required


# -- writing --------------------------------------------------------------------------------------


def _table_lines(table: Declaration) -> list[str]:
    key = [("row-key", ", ".join(table.key))] if table.key else []
    tag = _tag("table", ("name", table.name), ("model", table.model), *key)
    inside = [f"  {line}" for line in _inside(table)]
    lines = [f"{tag}>", *inside, "</table>"] if inside else [f"{tag}/>"]
    return [f"  {line}" for line in lines]


def _inside(table: Declaration) -> Iterator[str]:
    if table.description:
        yield f"<description>{_text(table.description)}</description>"
    for name, value in table.settings.items():
        yield f"{_tag('setting', ('name', name))}>{_text(declaration.word(value))}</setting>"
    if table.columns:
        yield "<schema>"
        for column in table.columns:
            required = [("required", "true")] if column.required else []
            tag = _tag("column", ("name", column.name), ("type", column.type), *required)
            yield f"  {tag}/>"
        yield "</schema>"
    for index in table.indexes:
        columns = "".join(_tag("column", ("name", name)) + "/>" for name in index.columns)
        tag = _tag("secondary-index", ("name", index.name))
        yield f"{tag}>{columns}</secondary-index>" if columns else f"{tag}/>"


def _tag(name: str, *attributes: tuple[str, str]) -> str:
    return " ".join([f"<{name}", *(f'{key}="{_text(one)}"' for key, one in attributes)])


def _text(text: str) -> str:
    unknown = _NO_XML.search(text)
    if unknown is not None:
        raise ValueError(f"XML has no character {unknown[0]!r}")
    return text.translate(_ESCAPED)
