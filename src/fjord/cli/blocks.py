"""`fjord blocks`: the cold history of tables; which blocks there are, and if they are whole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from fjord import limits
from fjord.cli import output
from fjord.cli.arguments import Node, argument, with_options
from fjord.cli.output import EXIT_USAGE, Bar, explained, tell
from fjord.errors import Code, CorruptionError, FjordError, NotFoundError, UsageError
from fjord.kinds import Kind

if TYPE_CHECKING:
    from fjord.blocks.store import Catalog, Metadata, Store
    from fjord.client.blocking.database import Database
    from fjord.client.history import BlockInfo

app = typer.Typer(
    name="blocks",
    help="Lists, writes, verifies and fetches cold blocks: the history of tables.",
    no_args_is_help=True,
)

Table = Annotated[str, argument("TABLE", "The table.")]
AnyTable = Annotated[
    str, typer.Argument(metavar="TABLE", help="Of this table only.", show_default="all")
]
Location = Annotated[
    str,
    typer.Option(
        help="Where the blocks are: a folder or a URL. No daemon is asked then.",
        show_default="as the node says",
    ),
]


@app.command("list")
@with_options
def list_(node: Node, table: Table) -> None:
    """Lists the blocks of a table in order: seqs, rows, bytes, dates and name.

    Exit code 1 if there is no such table, or if it has no history, as a key/value table has none.

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


@app.command()
@with_options
def seal(node: Node, table: AnyTable = "") -> None:
    """Writes everything that is durable to blocks now, instead of when they are full or old.

    Example: fjord blocks seal events
    """
    with node.open() as db:
        db.seal(table)
        node.done(table=table or None, sealed=True)


@app.command()
@with_options
def verify(
    node: Node,
    table: AnyTable = "",
    location: Location = "",
) -> None:
    """Reads blocks and compares their checksums; names those that are damaged or missing.

    Ends with 2 if there is one, and with 1 if there is no block at all.

    Example: fjord blocks verify events

    Example: fjord blocks verify --location s3://bucket/blocks
    """
    with explained(repairable=False), _libraries(), Bar("verifying") as bar:
        catalog, names = _found(node, table, location)
        _tell(verified(catalog, names, bar.update), "verified", as_json=node.as_json)


@app.command()
@with_options
def fetch(
    node: Node,
    table: AnyTable = "",
    into: Annotated[str, typer.Option(help="The folder to copy them to; made if missing.")] = "",
    location: Location = "",
) -> None:
    """Copies blocks with their metadata to a folder; those that it has already are passed over.

    The folder is a location itself: it can be verified, and read by Spark. A block that is damaged
    is named and not copied, and the exit code is 2 then. In JSON one that was passed over is not
    fetched and has no problem.

    Example: fjord blocks fetch events --into /backups/blocks

    Example: fjord blocks fetch --location s3://bucket/blocks --into blocks
    """
    with explained(repairable=False), _libraries(), Bar("fetching") as bar:
        if not into:
            raise UsageError("give --into with the folder to copy them to")
        catalog, names = _found(node, table, location)
        target = catalog_at(into)
        _tell(fetched(catalog, names, target, bar.update), "fetched", as_json=node.as_json)


@contextlib.contextmanager
def _libraries() -> Iterator[None]:
    """Says what to install where that is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        text = f"reading blocks needs {error.name}: pip install 'fjord-journal[server]'"
        raise FjordError(text) from error


def _found(node: Node, table: str, location: str) -> tuple[Catalog, list[str]]:
    """Returns where blocks are, and the names of those that are meant."""
    if location:
        catalog = catalog_at(location)
        return catalog, names_at(catalog, table)
    with node.open(read_only=True) as db:
        blocks = [one for name in _tables(db, table) for one in db.blocks(name)]
    if not blocks:
        what = f"{table} has" if table else "these tables have"
        raise NotFoundError(
            Code.NOT_FOUND, f"{what} no blocks yet; `fjord blocks seal` writes some"
        )
    if not blocks[0].location:
        raise FjordError("this node does not say where its blocks are; give --location")
    return catalog_at(blocks[0].location), [one.name for one in blocks]


def _tables(db: Database, table: str) -> list[str]:
    return [table] if table else [one.name for one in db.tables() if one.kind != Kind.KV]


def _tell(looked: Iterable[Looked], what: str, *, as_json: bool) -> None:
    """Says what became of each block, and ends with 2 if one is damaged."""
    count = damaged = passed_over = rows = size = 0
    for one in looked:
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
        passed = f"{passed_over} passed over, " if what == "fetched" else ""
        done = f"{output.counted(count, 'block')} {what}, {rows} rows, {size} bytes"
        output.print_line(f"{done}; {passed}{damaged} damaged")
    if damaged:
        tell("fjord: restore the named files from a copy; nothing was changed", style="red")
        raise typer.Exit(EXIT_USAGE)


# -- what `fjord blocks verify` and `fetch` do with the files of blocks, wherever they are --------
#
# Apart from the verbs, since it needs Parquet's and fsspec's libraries, which take long to load.


Progress = Callable[[int, int | None], None]


@dataclass(frozen=True, slots=True)
class Looked:
    """A block that was looked at."""

    name: str
    path: str  # of its data
    bytes: int = 0
    rows: int = 0
    problem: str = ""  # what is wrong with it, empty if nothing is
    is_new: bool = True  # of one that is fetched: it was not there before


def catalog_at(location: str) -> Catalog:
    """Returns the blocks of a location.

    Raises:
        UsageError: if nothing here can reach such a place.
    """
    from fjord.blocks.store import Catalog, Store

    try:
        return Catalog(Store(location))
    except (ImportError, ValueError) as error:
        raise UsageError(f"{location} cannot be reached: {error}") from error


def names_at(catalog: Catalog, table: str) -> list[str]:
    """Returns the blocks that are there, of one table or of all, in order.

    Raises:
        NotFoundError: if there is none.
    """
    store = catalog.store
    with _reached(store):
        folders = [
            folder for folder in store.folders() if not table or folder.rpartition("-")[0] == table
        ]
        found = [name for folder in folders for name in store.names(folder)]
    if not found:
        what = f"block of {table}" if table else "block"
        raise NotFoundError(Code.NOT_FOUND, f"there is no {what} at {store.location}")
    return found


def verified(catalog: Catalog, names: Sequence[str], progress: Progress) -> Iterator[Looked]:
    """Reads all of these blocks and compares their checksums; yields what it finds."""
    for done, name in enumerate(names):
        progress(done, len(names))
        with _reached(catalog.store):
            yield _verify_one(catalog, name)


def _verify_one(catalog: Catalog, name: str) -> Looked:
    path = catalog.store.path(name)
    try:
        found = catalog.verify(name)
    except FileNotFoundError:
        return Looked(name, path, problem="it is not there")
    except CorruptionError as error:
        return Looked(name, error.path, problem=error.reason)
    return Looked(name, path, found.bytes, found.rows)


def fetched(
    catalog: Catalog, names: Sequence[str], into: Catalog, progress: Progress
) -> Iterator[Looked]:
    """Copies blocks to another location; those that are there already are left as they are.

    A block whose bytes are not those that its metadata speaks of is not kept.
    """
    for done, name in enumerate(names):
        progress(done, len(names))
        with _reached(catalog.store), _reached(into.store):
            yield _fetch_one(catalog, name, into)


def _fetch_one(catalog: Catalog, name: str, into: Catalog) -> Looked:
    path = into.store.path(name)
    try:
        metadata = catalog.read(name)
        if _is_there(into, name, metadata):
            return Looked(name, path, metadata.bytes, metadata.rows, is_new=False)
        problem = _copy(catalog.store, name, metadata, into.store)
    except FileNotFoundError:
        return Looked(name, catalog.store.path(name), problem="it is not there")
    except CorruptionError as error:
        return Looked(name, error.path, problem=error.reason)
    if problem:
        return Looked(name, catalog.store.path(name), problem=problem)
    into.store.write_metadata(name, metadata.encode())
    return Looked(name, path, metadata.bytes, metadata.rows)


def _is_there(into: Catalog, name: str, metadata: Metadata) -> bool:
    if not into.store.exists(name):
        return False
    try:
        return into.verify(name).crc32c == metadata.crc32c
    except CorruptionError:
        return False  # it is fetched anew


def _copy(source: Store, name: str, metadata: Metadata, into: Store) -> str:
    """Copies the data of a block; returns why it was not kept, or nothing."""
    draft = into.draft(name)
    try:
        with source.open(name) as file:
            while data := file.read(limits.MIB):
                draft.write(data)
        draft.keep(name)
    finally:
        draft.drop()
    if (draft.size, draft.crc) == (metadata.bytes, metadata.crc32c):
        return ""
    into.remove(name)
    return (
        f"it has {draft.size} bytes with the checksum {draft.crc:08x}, its metadata says "
        f"{metadata.bytes} and {metadata.crc32c:08x}"
    )


@contextlib.contextmanager
def _reached(store: Store) -> Iterator[None]:
    """Turns what a place refuses into an error that can be told."""
    try:
        yield
    except OSError as error:
        raise FjordError(f"{store.location} cannot be used: {error}") from error
