"""Verifying and fetching the files of blocks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fjord.blocks import location
from fjord.blocks.location import CheckedBlock
from fjord.blocks.store import Catalog, Store
from fjord.errors import UsageError
from tests.unit.blocks import sealed


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(Store(str(tmp_path / "blocks")))


@pytest.fixture
def names(catalog: Catalog) -> list[str]:
    journal = sealed.journal_of([10, 10])
    return [one.name for one in journal.seal(catalog.store, journal.range(block_rows=10))]


def damage(path: str) -> None:
    with open(path, "r+b") as file:
        file.seek(50)
        file.write(b"?")


def verified(catalog: Catalog, names: list[str]) -> list[CheckedBlock]:
    told: list[tuple[int, int | None]] = []
    found = list(location.verified(catalog, names, lambda done, all_: told.append((done, all_))))
    assert told == [(done, len(names)) for done in range(len(names))]
    return found


def fetched(catalog: Catalog, names: list[str], into: Catalog) -> list[CheckedBlock]:
    return list(location.fetched(catalog, names, into, lambda done, all_: None))


def test_damaged_and_missing_blocks_are_named(catalog: Catalog, names: list[str]) -> None:
    damage(catalog.store.path(names[0]))
    catalog.store.remove(names[1])
    first, second = verified(catalog, names)
    assert first.path == catalog.store.path(names[0])
    assert "its checksum is" in first.problem
    assert (second.name, second.problem) == (names[1], "it does not exist")


def test_metadata_that_is_damaged_is_a_problem_of_its_block(
    catalog: Catalog, names: list[str]
) -> None:
    catalog.store.write_metadata(names[0], b"{")
    first, second = verified(catalog, names)
    assert first.path.endswith(".json")
    assert "not the metadata" in first.problem
    assert second.problem == ""
    (copied, _) = fetched(catalog, names, Catalog(Store("memory://fetched-metadata")))
    assert copied.problem == first.problem


def test_what_is_fetched_is_a_location_itself(
    catalog: Catalog, names: list[str], tmp_path: Path
) -> None:
    into = Catalog(Store(str(tmp_path / "copy")))
    assert [(one.is_new, one.problem) for one in fetched(catalog, names, into)] == [(True, "")] * 2
    assert location.names_at(into, "events") == names
    assert [one.problem for one in verified(into, names)] == ["", ""]
    assert into.list("events") == catalog.list("events")


def test_what_is_there_is_not_fetched_again(
    catalog: Catalog, names: list[str], tmp_path: Path
) -> None:
    into = Catalog(Store(str(tmp_path / "copy")))
    fetched(catalog, names[:1], into)
    assert [one.is_new for one in fetched(catalog, names, into)] == [False, True]
    damage(into.store.path(names[0]))
    assert [one.is_new for one in fetched(catalog, names, into)] == [True, False]
    assert [one.problem for one in verified(into, names)] == ["", ""]


def test_a_damaged_block_is_not_kept(catalog: Catalog, names: list[str], tmp_path: Path) -> None:
    damage(catalog.store.path(names[0]))
    catalog.store.remove(names[1])
    into = Catalog(Store(str(tmp_path / "copy")))
    first, second = fetched(catalog, names, into)
    assert "checksum" in first.problem
    assert first.path == catalog.store.path(names[0])
    assert second.problem == "it does not exist"
    assert into.store.names() == []
    assert not any(files for _, _, files in os.walk(tmp_path / "copy"))


def test_a_place_that_nothing_can_reach_is_wrong_use() -> None:
    with pytest.raises(UsageError, match="nosuch://x is not accessible"):
        location.catalog_at("nosuch://x")
