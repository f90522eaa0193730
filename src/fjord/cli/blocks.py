"""`fjord blocks`: lists, writes, verifies and fetches cold blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Final

import typer

from fjord.cli import output
from fjord.cli.arguments import AnyKind, Node, argument, noun, option, verb
from fjord.cli.output import EXIT_USAGE, Bar, explained, needs, tell
from fjord.errors import Code, FjordError, NotFoundError, UsageError
from fjord.kinds import Kind

if TYPE_CHECKING:
    from fjord.blocks.location import CheckedBlock
    from fjord.blocks.store import Catalog
    from fjord.client.history import BlockInfo

app = noun("blocks", "Lists, writes, verifies and fetches cold blocks: the history of tables.")

_SERVER: Final = "reading blocks needs {}: pip install 'fjord-journal[server]'"

AnyTable = Annotated[str, argument("TABLE", "Only this table.", shown="all")]
Location = Annotated[
    str, option("Where the blocks are: a folder or a URL. Needs no daemon.", shown="the node's")
]


@verb(app, "list")
def list_(node: Node, table: AnyKind) -> None:
    """Lists the blocks of a table in order: seqs, rows, bytes, dates and name.

    Exit code 1 if there is no such table, or if it is a key/value table, which has no history.

    Example: fjord blocks list events

    Example: fjord blocks list events --json | jq .rows
    """
    with node.open(read_only=True) as db:
        names = ("first", "last", "rows", "bytes", "from", "until", "name")
        node.print_all(db.blocks(table), _describe, names, _cells)


def _describe(block: BlockInfo) -> dict[str, object]:
    return {
        "name": block.name,
        "first": block.first,
        "last": block.last,
        "rows": block.rows,
        "bytes": block.bytes,
        "from": output.date(block.min_at),
        "until": output.date(block.max_at),
        "crc32c": f"{block.crc:08x}",
        "location": block.location,
    }


def _cells(block: BlockInfo) -> tuple[str, ...]:
    numbers = map(str, (block.first, block.last, block.rows, block.bytes))
    dates = (output.date(one) or "" for one in (block.min_at, block.max_at))
    return (*numbers, *dates, block.name)


@verb(app)
def seal(node: Node, table: AnyTable = "") -> None:
    """Writes all durable history to blocks now, instead of when they are full or old enough.

    Example: fjord blocks seal events
    """
    with node.open() as db:
        db.seal(table)
        node.done(table=table or None, sealed=True)


@verb(app)
def verify(node: Node, table: AnyTable = "", location: Location = "") -> None:
    """Reads blocks and compares their checksums; reports damaged and missing ones.

    Exit code 2 if there are any, and 1 if there is no block at all.

    Example: fjord blocks verify events

    Example: fjord blocks verify --location s3://bucket/blocks
    """
    with explained(repairable=False), needs(_SERVER), Bar("verifying") as bar:
        from fjord.blocks.location import verified

        catalog, names = _found(node, table, location)
        _tell(verified(catalog, names, bar.update), "verified", as_json=node.as_json)


@verb(app)
def fetch(
    node: Node,
    table: AnyTable = "",
    into: Annotated[str, option("The folder to copy them to; created if missing.")] = "",
    location: Location = "",
) -> None:
    """Copies blocks with their metadata to a folder; skips those that it already has.

    The folder is a location itself: it can be verified, and read by Spark. Damaged blocks are
    reported and not copied, and the exit code is 2. In JSON a skipped block is not fetched and
    has no problem.

    Example: fjord blocks fetch events --into /backups/blocks

    Example: fjord blocks fetch --location s3://bucket/blocks --into blocks
    """
    with explained(repairable=False), needs(_SERVER), Bar("fetching") as bar:
        if not into:
            raise UsageError("give the folder to copy to with --into")
        from fjord.blocks.location import catalog_at, fetched

        catalog, names = _found(node, table, location)
        target = catalog_at(into)
        _tell(fetched(catalog, names, target, bar.update), "fetched", as_json=node.as_json)


def _found(node: Node, table: str, location: str) -> tuple[Catalog, list[str]]:
    from fjord.blocks.location import catalog_at, names_at

    if location:
        catalog = catalog_at(location)
        return catalog, names_at(catalog, table)
    with node.open(read_only=True) as db:
        names = [table] if table else [one.name for one in db.tables() if one.kind != Kind.KV]
        blocks = [one for name in names for one in db.blocks(name)]
    if not blocks:
        what = f"{table} has" if table else "these tables have"
        text = f"{what} no blocks yet; write some with `fjord blocks seal`"
        raise NotFoundError(Code.NOT_FOUND, text)
    if not blocks[0].location:
        raise FjordError("this node does not report the location of its blocks; give --location")
    return catalog_at(blocks[0].location), [one.name for one in blocks]


def _tell(blocks: Iterable[CheckedBlock], what: str, *, as_json: bool) -> None:
    count = damaged = passed_over = rows = size = 0
    for one in blocks:
        is_done = one.is_new and not one.problem
        count += is_done
        damaged += bool(one.problem)
        passed_over += not one.is_new
        rows, size = rows + one.rows * is_done, size + one.bytes * is_done
        if as_json:
            output.print_json(
                {
                    "name": one.name,
                    "path": one.path,
                    "rows": one.rows,
                    "bytes": one.bytes,
                    what: is_done,
                    "problem": one.problem or None,
                }
            )
        elif one.problem:
            output.print_line(f"{one.path} is damaged: {one.problem}")
    if not as_json:
        passed = f"{passed_over} skipped, " if what == "fetched" else ""
        done = f"{output.counted(count, 'block')} {what}, {rows} rows, {size} bytes"
        output.print_line(f"{done}; {passed}{damaged} damaged")
    if damaged:
        tell("fjord: restore the named files from a copy; nothing was changed", style="red")
        raise typer.Exit(EXIT_USAGE)
