"""Where files are: whole or not at all, in a folder, on a simulated disk, and in memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fjord.blocks.store import Store
from fjord.errors import DirectoryInUseError
from fjord.testing import SimDisk
from fjord.testing.disk import SimCrash
from tests.unit.blocks import sealed

NAME = f"events-7/{1:020d}-{9:020d}-{5:016x}"
OTHER = f"events-7/{10:020d}-{19:020d}-{5:016x}"
FOLDER = "events-7"

MakeStore = Callable[[], Store]


@pytest.fixture(params=["folder", "url", "disk", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    makers: dict[str, MakeStore] = {
        "folder": lambda: Store(str(tmp_path / "cold")),
        "url": lambda: Store(f"file://{tmp_path}/cold"),
        "disk": lambda: Store("/cold", disk=SimDisk()),
        "memory": sealed.memory_store,
    }
    return makers[request.param]()


def put(store: Store, name: str, data: bytes) -> None:
    draft = store.draft(name)
    try:
        draft.write(data)
        draft.keep(name)
    finally:
        draft.drop()
    store.write_metadata(name, b"{}")


@pytest.mark.req("JQ-15")
def test_what_was_kept_is_read_back(store: Store) -> None:
    put(store, NAME, b"some data")
    with store.open(NAME) as file:
        assert file.read() == b"some data"
        file.seek(-4, 2)
        assert file.read(3) == b"dat"
    assert store.size(NAME) == 9
    assert store.read_metadata(NAME) == b"{}"
    assert store.exists(NAME)
    assert store.path(NAME).endswith(f"{NAME}.parquet")


def test_what_was_set_aside_is_nothing_until_it_is_adopted(store: Store) -> None:
    draft = store.draft(NAME, is_rewrite=True)
    draft.write(b"some data")
    path = draft.set_aside(NAME.partition("/")[0])
    draft.drop()
    assert (store.has_data(NAME), store.names(FOLDER)) == (False, [])
    store.drop_unfinished(FOLDER)  # it is not what sealing leaves behind
    store.adopt(path, NAME)
    with store.open(NAME) as file:
        assert file.read() == b"some data"
    other = store.draft(OTHER, is_rewrite=True)
    other.write(b"in vain")
    path = other.set_aside(OTHER.partition("/")[0])
    other.drop()
    store.drop_rewrites(FOLDER)
    with pytest.raises(FileNotFoundError):
        store.adopt(path, OTHER)
    assert store.has_data(NAME)


def test_who_rewrites_keeps_out_others_who_do_but_not_sealing(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    with store.rewriting_lock(), store.lock(), pytest.raises(DirectoryInUseError):
        store.rewriting_lock().__enter__()
    with store.rewriting_lock():
        pass


def test_a_draft_knows_its_size_and_checksum(store: Store) -> None:
    draft = store.draft(NAME)
    for data in (b"12345", b"6789"):
        draft.write(data)
    assert (draft.size, draft.crc) == (9, 0xE3069283)
    draft.keep(NAME)
    draft.drop()
    assert store.checksum(NAME) == draft.crc


def test_names_are_in_order_and_of_whole_blocks(store: Store) -> None:
    put(store, OTHER, b"b")
    put(store, NAME, b"a")
    without = store.draft(f"events-8/{1:020d}-{2:020d}-{5:016x}")
    without.keep(f"events-8/{1:020d}-{2:020d}-{5:016x}")
    without.drop()
    assert store.names() == [NAME, OTHER]
    assert store.names(FOLDER) == [NAME, OTHER]
    assert store.names("events-9") == []
    assert store.folders() == [FOLDER, "events-8"]


def test_what_is_removed_is_gone_and_may_be_removed_again(store: Store) -> None:
    put(store, NAME, b"a")
    for _ in range(2):
        store.remove(NAME)
        assert not store.exists(NAME)
        assert not store.has_data(NAME)
    with pytest.raises(FileNotFoundError):
        store.size(NAME)
    with pytest.raises(FileNotFoundError):
        store.read_metadata(NAME)


@pytest.mark.parametrize(
    "name",
    ["", "x", "/etc/passwd", f"../{NAME}", f"a/../../{NAME}", NAME + "\n", "../../" + NAME[9:]],
)
def test_only_names_of_blocks_are_names_of_files(store: Store, name: str) -> None:
    for call in (store.open, store.draft, store.remove, store.exists, store.read_metadata):
        with pytest.raises(ValueError, match="is not the name of a block"):
            call(name)


def test_a_folder_has_one_writer(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    with store.lock(), pytest.raises(DirectoryInUseError), Store(str(tmp_path)).lock():
        pass
    with Store(str(tmp_path)).lock():
        assert store.is_shared


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "events-7").mkdir()
    (tmp_path / "events-7" / "note.json").write_text("mine")
    (tmp_path / f"{NAME}.json").write_text("not hidden, so it is not ours")
    (tmp_path / "lost+found").mkdir()
    store = Store(str(tmp_path))
    assert store.names() == []
    assert store.folders() == ["events-7"]


def test_a_power_cut_leaves_a_block_whole_or_not_at_all() -> None:
    for number in range(1, 40):
        disk = SimDisk(number, crash_at=number)
        store = Store("/cold", disk=disk)
        try:
            put(store, NAME, b"data" * 1000)
            is_done = True
        except SimCrash:
            is_done = False
        disk.power_cut()
        if is_done:
            assert store.exists(NAME)
        if store.exists(NAME):
            assert store.read_metadata(NAME) == b"{}"
            with store.open(NAME) as file:
                assert file.read() == b"data" * 1000
        if is_done:
            return
    pytest.fail("there is no end to it")
