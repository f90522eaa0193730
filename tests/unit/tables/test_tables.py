"""The dictionaries that lead from commands and opcodes to what they do."""

from __future__ import annotations

import typing

from fjord import commands, ops, tables
from fjord.commands import Command
from fjord.ops import Opcode
from fjord.tables import catalog
from fjord.tables.state import Kind, Table, Tree


def test_every_opcode_is_applied_and_has_columns() -> None:
    assert set(tables.APPLY) == set(Opcode) == set(ops.COLUMNS)


def test_every_command_is_decided_or_is_a_scan() -> None:
    asked = set(typing.get_args(Command))
    assert set(tables.DECIDE) == (asked - {commands.Scan}) | {catalog.TakeOver}


def test_commands_that_read_are_decided_and_cannot_be_merged() -> None:
    assert set(tables.DECIDE) > tables.READS
    assert {commands.Set, commands.Delete, catalog.TakeOver}.isdisjoint(tables.READS)
    assert set(tables.MERGE) == set(tables.MERGE_KEY)
    assert set(tables.MERGE).isdisjoint(tables.READS)


def test_trees_are_numbered_from_0_without_gaps() -> None:
    assert [tree.value for tree in Tree] == list(range(len(Tree)))


def test_stored_kinds_keep_their_numbers() -> None:
    assert {kind.name: kind.value for kind in Kind} == {"KV": 1}


def test_the_prefixes_of_tables_sort_as_their_ids_do() -> None:
    ids = [1, 2, 255, 256, 65_536, 2**32 - 1]
    prefixes = [Table(id=number, name="t", kind=Kind.KV).prefix for number in ids]
    assert prefixes == sorted(prefixes)
    assert {len(prefix) for prefix in prefixes} == {4}
