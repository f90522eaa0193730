"""A file on its way: what is handed out, erased and kept, and where it goes on after a crash."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.client.spool import files, reader
from fjord.client.spool.files import ASIDE, HEADER_BYTES, Fate, SpoolFile, line_of
from fjord.client.spool.reader import UNKNOWN, FileReader, Load
from tests.unit.client.spool import spool_samples as samples
from tests.unit.client.spool.spool_samples import IDENTITY, NOW

RECORDS = [samples.appended(b"message %d" % n, b"key") for n in range(6)]
LINES = samples.lines_of(*RECORDS)
ENDS = [HEADER_BYTES + len(samples.lines_of(*RECORDS[: n + 1])) for n in range(len(RECORDS))]


def make(directory: Path, data: bytes) -> FileReader:
    return FileReader(samples.make_file(directory, data))


def loads(source: FileReader, *, is_closed: bool = False) -> Iterator[Load]:
    while (load := source.next_load(samples.NOW, is_closed=is_closed)) is not None:
        yield load


def drained(source: FileReader, *, is_closed: bool = False) -> list[bytes]:
    """Returns all records that a file has, as one that confirms each load sees them."""
    found: list[bytes] = []
    for load in loads(source, is_closed=is_closed):
        found.extend(load.records)
        source.confirm(load)
    source.rest()
    return found


def test_a_file_is_known_to_the_daemon_by_its_uuid(tmp_path: Path) -> None:
    source = make(tmp_path, b"")
    assert source.writer == f"spool:{IDENTITY.hex()}"
    assert source.header.created_us == NOW
    assert source.known is None
    assert source.next_load(NOW) is None


# -- handing out ----------------------------------------------------------------------------------


@pytest.mark.req("FJ-21")
def test_half_a_line_is_waited_for_byte_by_byte(tmp_path: Path) -> None:
    source = make(tmp_path, b"")
    path = tmp_path / source.file.name
    found = []
    for at in range(len(LINES)):
        with path.open("ab") as file:
            file.write(LINES[at : at + 1])
        assert source.has_more()
        found += drained(source)
        assert not source.has_more()  # nobody looks at the same half over and over
        assert len(found) == sum(end <= HEADER_BYTES + at + 1 for end in ENDS)
    assert found == RECORDS
    assert not source.set_aside


def test_a_file_longer_than_a_chunk_is_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for size in (1, 50, 97, 200):
        monkeypatch.setattr(files, "CHUNK_BYTES", size)
        torn = line_of(RECORDS[0])[:30]
        source = make(tmp_path, LINES + torn + b" " * 300 + LINES)
        assert drained(source) == RECORDS + RECORDS
        assert source.set_aside == {Fate.TORN: 1}
        source.file.close()


# -- what became of it ----------------------------------------------------------------------------


@pytest.mark.req("FJ-25")
def test_what_is_confirmed_is_erased(tmp_path: Path) -> None:
    source = make(tmp_path, LINES)
    assert drained(source) == RECORDS
    assert not samples.rest_of(source.file).strip(b" \n\0")
    assert source.file.size() == HEADER_BYTES + len(LINES)
    assert source.known == source.done == HEADER_BYTES + len(LINES)
    assert source.waiting_bytes() == 0


@pytest.mark.req("FJ-25")
def test_a_restart_skips_what_was_erased(tmp_path: Path) -> None:
    source = make(tmp_path, LINES)
    load = source.next_load(samples.NOW)
    assert load is not None
    first, second = reader.halves(load, samples.NOW)
    source.confirm(first)
    source.file.close()
    again = FileReader(SpoolFile(str(tmp_path), source.file.name))
    again.align(UNKNOWN)  # even if the daemon knew nothing of it
    assert drained(again) == list(second.records)


def test_a_refused_record_stays_and_the_rest_goes_on(tmp_path: Path) -> None:
    source = make(tmp_path, LINES)
    source.align(UNKNOWN)
    (load,) = loads(source)
    first, second = reader.halves(load, samples.NOW)
    source.confirm(first)
    bad, _ = reader.halves(second, samples.NOW)
    assert len(bad.records) == 1
    source.refuse(bad)
    source.rewind()
    assert source.sent == first.end  # the daemon knows nothing of what it refused
    assert drained(source) == RECORDS[4:]
    assert samples.rest_of(source.file).strip() == ASIDE + line_of(RECORDS[3])[1:-1]
    assert source.set_aside == {Fate.ASIDE: 1}


# -- after a crash --------------------------------------------------------------------------------


@pytest.mark.parametrize("count", range(len(RECORDS) + 1))
def test_what_the_daemon_has_is_not_sent_again(tmp_path: Path, count: int) -> None:
    known = [UNKNOWN, *ENDS][count]
    source = make(tmp_path, LINES)
    source.align(known)
    assert source.known == source.sent == known
    assert drained(source) == RECORDS[count:]
    assert not samples.rest_of(source.file).strip(b" \n\0")
    assert not source.set_aside


@given(st.data())
def test_a_power_cut_in_the_middle_of_an_erase_does_no_harm(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    # Some sectors were erased, and some were not; the daemon has all of it.
    aside = ASIDE + line_of(RECORDS[0])[1:]
    before = LINES + aside + LINES
    found = bytearray(before)
    for start in data.draw(st.lists(st.integers(0, len(before)), max_size=6)):
        for at in range(start, min(start + 64, len(before))):
            if not len(LINES) <= at < len(LINES + aside):
                found[at] = data.draw(st.sampled_from(b" \n\0")) if at == start else 0x20
    source = make(tmp_path_factory.mktemp("spool"), bytes(found) + samples.lines_of(RECORDS[5]))
    source.align(HEADER_BYTES + len(before))
    assert drained(source) == [RECORDS[5]]
    assert source.set_aside == {Fate.ASIDE: 1}
    assert samples.rest_of(source.file).replace(b"\0", b" ").strip() == aside.strip()
    source.file.close()


class SyncedFile(SpoolFile):
    """A file of which a power cut leaves what was synced."""

    def __init__(self, directory: str, name: str) -> None:
        super().__init__(directory, name)
        self.kept = self.read(0, self.size())[:HEADER_BYTES]

    def sync(self) -> None:
        super().sync()
        self.kept = self.read(0, self.size())


def test_what_is_set_aside_stays_so_after_a_power_cut(tmp_path: Path) -> None:
    # Else it would pass for sent, since the daemon has what is behind it.
    strange, half = samples.lines_of(b"\x09" * 40), LINES[:30]
    samples.make_file(tmp_path, half + samples.lines_of(*RECORDS[:2]) + strange + LINES).close()
    file = SyncedFile(str(tmp_path), "07.spool")
    source = FileReader(file)
    source.align(UNKNOWN)
    load = source.next_load(samples.NOW)
    assert load is not None
    assert file.kept[HEADER_BYTES:].startswith(ASIDE + half[1:])
    bad, good = reader.halves(load, samples.NOW)
    source.refuse(bad)
    assert file.kept[bad.start : bad.start + 1] == ASIDE
    source.confirm(good)
    assert drained(source) == RECORDS
    (tmp_path / "07.spool").write_bytes(file.kept)
    after = FileReader(SpoolFile(str(tmp_path), "07.spool"))
    after.align(source.known or 0)
    assert after.set_aside == {Fate.ASIDE: 3}
    assert drained(after) == []
