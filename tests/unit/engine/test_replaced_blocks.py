"""Blocks that others have taken the place of, on an engine: read as before, gone after a while."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fjord import limits
from fjord.blocks import writer
from fjord.blocks.store import Catalog
from fjord.commands import Done, DropTable, ReplaceBlocks
from fjord.history import Block
from fjord.tables.state import Tree
from tests.unit.engine.stream_shell import Shell

KEPT_SECONDS = limits.REPLACED_KEPT_US / 1_000_000


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    opened = Shell(tmp_path / "data")
    yield opened
    opened.close()


def fill(shell: Shell, blocks: int) -> list[tuple[str, str | None]]:
    """Writes messages to so many blocks; returns them."""
    found: list[tuple[str, str | None]] = []
    for number in range(blocks):
        rows: list[tuple[str, str | None]] = [("k", f"{number}-{row}") for row in range(3)]
        shell.append("log", *rows)
        shell.seal("log")
        found += rows
    shell.tend()
    return found


def put_together(shell: Shell, old: list[Block]) -> Block:
    """Writes a block with the rows of others, and puts it in their place."""
    store = shell.shore.store
    found = writer.rewrite(store, [one.name for one in old], tag=old[0].first)
    writer.publish(store, found, wall_us=1)
    new = found.metadata.block(found.name)
    assert isinstance(shell.run(replacing(old, new)), Done)
    writer.relink(Catalog(store), [one.name for one in shell.engine.sealing.blocks("log")])
    return new


def replacing(old: list[Block], new: Block) -> ReplaceBlocks:
    return ReplaceBlocks(
        table="log",
        names=[one.name for one in old],
        name=new.name,
        rows=new.rows,
        size=new.bytes,
        min_us=new.min_us,
        max_us=new.max_us,
        crc=new.crc,
    )


def test_nobody_who_reads_sees_a_difference(shell: Shell) -> None:
    rows = fill(shell, 5)
    old = shell.engine.sealing.blocks("log")
    new = put_together(shell, old[1:4])
    assert shell.engine.sealing.blocks("log") == [old[0], new, old[4]]
    assert shell.read_all("log") == rows
    assert shell.read_all("log", old[2].first - 1) == rows[6:]
    shell.restart()
    assert shell.engine.sealing.blocks("log") == [old[0], new, old[4]]
    assert shell.read_all("log") == rows


def test_files_stay_for_a_while_and_then_go(shell: Shell) -> None:
    rows = fill(shell, 4)
    old = shell.engine.sealing.blocks("log")
    names = [one.name for one in old]
    new = put_together(shell, old[:3])
    store = shell.shore.store
    assert shell.shore.retire(shell.engine) == []
    due_us = shell.engine.sealing.due_us()
    assert due_us == shell.clock.wall_us() + limits.REPLACED_KEPT_US
    shell.clock.advance(KEPT_SECONDS - 1)
    assert shell.shore.retire(shell.engine) == []
    assert store.names() == sorted([*names, new.name])
    shell.restart()
    shell.clock.advance(1)
    gone = shell.shore.retire(shell.engine)
    assert [one.name for one in gone] == names[:3]
    assert store.names() == sorted([new.name, names[3]])
    assert shell.count(Tree.REPLACED) == 0
    assert shell.shore.retire(shell.engine) == []
    assert shell.read_all("log") == rows


def test_replaced_blocks_outlive_packing_and_a_dropped_table(shell: Shell) -> None:
    fill(shell, 3)
    old = shell.engine.sealing.blocks("log")
    new = put_together(shell, old)
    shell.pack()
    shell.engine.abandon()
    shell.restart()
    assert shell.engine.sealing.blocks("log") == [new]
    shell.run(DropTable(name="log"))
    shell.tend()
    assert [one.name for one in shell.shore.retire(shell.engine)] == [new.name]
    shell.clock.advance(KEPT_SECONDS)
    assert len(shell.shore.retire(shell.engine)) == 3
    assert shell.shore.store.names() == []
    shell.tend()
    assert shell.engine.stats()["tables"] == 0
