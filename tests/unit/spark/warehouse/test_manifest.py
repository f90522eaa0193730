"""What commits add up to, and what is refused."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fjord.errors import CorruptionError, FjordError
from fjord.spark import warehouse
from fjord.spark.warehouse import BackwardsError, Commit, DataFile, Query, QueryBatch, TableState

FILE = DataFile(path="batch-0-a/1", rows=10, bytes=500, min_seq=3, max_seq=12, value_crc=77)
BATCH = QueryBatch(query="q", number=0, table="events", start=1, end=12, epoch="ab")
FIRST = Commit(number=1, at_us=5, batch=BATCH, added=(FILE,))


def batch(number: int, start: int, end: int, query: str = "q") -> QueryBatch:
    return QueryBatch(query=query, number=number, table="events", start=start, end=end)


def folded(*commits: Commit) -> TableState:
    state = TableState()
    for commit in commits:
        state = warehouse.after(state, commit, "here")
    return state


def test_a_table_is_the_fold_of_its_commits() -> None:
    further = replace(FILE, path="batch-1-b/1", min_seq=13, max_seq=20, value_crc=None)
    second = Commit(number=2, at_us=6, batch=batch(1, 13, 25), added=(further,))
    assert folded(FIRST) == TableState(
        number=1,
        table="events",
        epoch="ab",
        start=1,
        end=12,
        queries={"q": Query(batch=0, start=1)},
        files={FILE.path: FILE},
    )
    assert folded(FIRST, second) == TableState(
        number=2,
        table="events",
        epoch="",  # that of seq 12 is not that of seq 25
        start=1,
        end=25,
        queries={"q": Query(batch=1, start=1)},
        files={FILE.path: FILE, further.path: further},
    )


def test_an_epoch_is_that_of_the_end_or_unknown() -> None:
    nothing = Commit(number=2, at_us=6, batch=batch(1, 13, 12))
    assert (folded(FIRST, nothing).end, folded(FIRST, nothing).epoch) == (12, "ab")
    more = Commit(number=3, at_us=7, batch=batch(2, 13, 20))
    assert folded(FIRST, nothing, more).epoch == ""
    known = Commit(number=4, at_us=8, batch=replace(batch(3, 21, 30), epoch="cd"))
    assert folded(FIRST, nothing, more, known).epoch == "cd"


def test_a_batch_is_known_with_all_before_it() -> None:
    state = folded(FIRST, Commit(number=2, at_us=6, batch=batch(5, 13, 20)))
    assert [state.has("q", number) for number in (0, 3, 5, 6)] == [True, True, True, False]
    assert not state.has("another", 0)


def test_files_take_the_place_of_others() -> None:
    other = replace(FILE, path="batch-9-c/1")
    commit = Commit(number=2, at_us=6, batch=None, added=(other,), removed=(FILE.path,))
    assert folded(FIRST, commit) == replace(folded(FIRST), number=2, files={other.path: other})


@pytest.mark.parametrize(
    ("commit", "told"),
    [
        pytest.param(replace(FIRST, number=3), "commit 3 follows 1", id="gap"),
        pytest.param(
            Commit(number=2, at_us=6, batch=None, removed=("x",)), "removes x", id="removed"
        ),
        pytest.param(
            Commit(number=2, at_us=6, batch=batch(1, 13, 20), added=(FILE,)),
            "adds a file that is there",
            id="added",
        ),
    ],
)
def test_commits_that_do_not_follow_are_damage(commit: Commit, told: str) -> None:
    with pytest.raises(CorruptionError, match=told):
        warehouse.after(folded(FIRST), commit, "here")


def test_commits_and_checkpoints_survive_writing() -> None:
    maintenance = Commit(number=2, at_us=6, batch=None, added=(), removed=("a", "b"))
    for commit in (FIRST, maintenance):
        assert warehouse.decode_commit(warehouse.encode_commit(commit), "x") == commit
    state = folded(FIRST)
    assert warehouse.decode_state(warehouse.encode_state(state), "x") == state


def test_members_of_a_later_version_are_left_out() -> None:
    found = json.loads(warehouse.encode_commit(FIRST))
    found["more"] = found["batch"]["more"] = found["added"][0]["more"] = 5
    assert warehouse.decode_commit(json.dumps(found).encode(), "x") == FIRST


def test_a_later_form_is_refused() -> None:
    found = {**json.loads(warehouse.encode_commit(FIRST)), "version": 2}
    with pytest.raises(FjordError, match="has version 2, and this version of Fjord knows 1"):
        warehouse.decode_commit(json.dumps(found).encode(), "x")


def without(name: str) -> dict[str, Any]:
    found = json.loads(warehouse.encode_commit(FIRST))
    del found[name]
    return dict(found)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"[]", id="list"),
        pytest.param(b"{}", id="no version"),
        pytest.param(b"[" * 100_000, id="deep"),
        pytest.param(json.dumps(without("number")).encode(), id="no number"),
        pytest.param(json.dumps(without("added")).encode(), id="no files"),
        pytest.param(json.dumps({**without("batch"), "batch": 5}).encode(), id="batch"),
        pytest.param(json.dumps({**without("added"), "added": [{}]}).encode(), id="file"),
    ],
)
def test_damaged_commits_are_told(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="x is damaged"):
        warehouse.decode_commit(data, "x")
    with pytest.raises(CorruptionError, match="x is damaged"):
        warehouse.decode_state(data, "x")


def test_the_example_in_the_page_is_a_commit() -> None:
    page = (Path(__file__).resolve().parents[4] / "docs" / "warehouse.md").read_text()
    (example,) = re.findall(r"^```json\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    found = warehouse.decode_commit(example.encode(), "docs/warehouse.md")
    assert warehouse.encode_commit(found).decode() == example
    first = replace(FIRST, batch=replace(BATCH, end=4))
    assert folded(first, found).end == 6


def test_what_was_taken_is_known_and_older_files_took_all() -> None:
    some = replace(BATCH, columns="seq,key", ops="SET")
    state = folded(replace(FIRST, batch=some))
    assert (state.columns, state.ops) == ("seq,key", "SET")
    assert warehouse.decode_state(warehouse.encode_state(state), "here") == state
    older = json.loads(warehouse.encode_commit(FIRST))
    del older["batch"]["columns"], older["batch"]["ops"]
    assert warehouse.decode_commit(json.dumps(older).encode(), "here") == FIRST
    older = json.loads(warehouse.encode_state(folded(FIRST)))
    del older["columns"], older["ops"]
    assert warehouse.decode_state(json.dumps(older).encode(), "here") == folded(FIRST)


@pytest.mark.parametrize("start", [1, 12])
def test_a_table_does_not_go_back(start: int) -> None:
    commit = Commit(number=2, at_us=6, batch=batch(0, start, 30, query="another"))
    with pytest.raises(BackwardsError, match="up to seq 12, and batch 0 of query another begins"):
        warehouse.after(folded(FIRST), commit, "here")
