"""Segments changed at random: only declared errors, and bounded memory and time.

Each example is a journal of three segments to which some harm is done.  The strict reader then
reads it or raises a CorruptionError.  The survey reads it or raises one too.  What it calls whole
is what was written, and after a repair the strict reader finds exactly that.
"""

from __future__ import annotations

import functools
import itertools
import tracemalloc
from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fjord import limits
from fjord.errors import CorruptionError
from fjord.journal import explain as explaining
from fjord.journal import frame as frames
from fjord.journal import inspect
from fjord.journal.inspect import DumpRow
from fjord.journal.reader import Journal
from fjord.journal.repair import repair
from fjord.journal.writer import Writer
from fjord.testing import SimDisk
from tests.unit.journal.writing import append, header, rotate

MEMORY_BYTES_MAX = 64 * limits.MIB

Files = dict[str, bytes]
Harm = Callable[[bytes], bytes]


@functools.cache
def journal_files() -> Files:
    """Three segments of frames of 1 to 40 rows."""
    disk = SimDisk()
    disk.make_directory("/journal")
    writer = Writer(disk, "/journal", header(), segment_bytes=limits.SEGMENT_BYTES_MIN)
    writer.create()
    for number in range(30):
        append(writer, *(b"%d %d " % (number, row) * row for row in range(1 + number * 7 % 40)))
        if number % 4 == 0:
            writer.sync()
        if number in (9, 19):
            rotate(writer, urgent=True)
    writer.close()
    names = disk.names("/journal")
    return {name: read(disk, f"/journal/{name}") for name in names}


def read(disk: SimDisk, path: str) -> bytes:
    file = disk.open(path)
    return file.read(0, file.size())


def place(files: Files) -> SimDisk:
    disk = SimDisk()
    disk.make_directory("/journal")
    for name, data in files.items():
        disk.open(f"/journal/{name}", writable=True, create=True).write(0, data)
    return disk


def said(disk: SimDisk) -> dict[int, tuple[str, object]]:
    """Everything that can be made out: seq -> what the row says."""
    steps = inspect.dump(disk, "/journal", durable_seq=last_seq())
    return {
        step.seq: (step.op, step.fields.get("value"))
        for step in steps
        if isinstance(step, DumpRow) and step.op != "LOST"
    }


@functools.cache
def written() -> dict[int, tuple[str, object]]:
    disk = place(journal_files())
    steps = inspect.dump(disk, "/journal")
    return {
        step.seq: (step.op, step.fields.get("value")) for step in steps if isinstance(step, DumpRow)
    }


@functools.cache
def last_seq() -> int:
    return max(written())


@functools.cache
def whole_frames() -> dict[int, bytes]:
    """The body of every frame, by its first seq."""
    journal = Journal(place(journal_files()), "/journal")
    return {one.frame.first_seq: one.body for one in journal.frames(1, durable_seq=0)}


# -- harms ----------------------------------------------------------------------------------------


def flip(at: int, bits: int) -> Harm:
    def harm(data: bytes) -> bytes:
        position = at % max(1, len(data))
        return data[:position] + bytes([data[position] ^ bits]) + data[position + 1 :]

    return lambda data: harm(data) if data else data


def overwrite(at: int, new: bytes) -> Harm:
    def harm(data: bytes) -> bytes:
        position = at % (len(data) + 1)
        return data[:position] + new + data[position + len(new) :]

    return harm


def insert(at: int, new: bytes) -> Harm:
    def harm(data: bytes) -> bytes:
        position = at % (len(data) + 1)
        return data[:position] + new + data[position:]

    return harm


def cut(at: int) -> Harm:
    return lambda data: data[: at % (len(data) + 1)]


def remove(at: int, size: int) -> Harm:
    def harm(data: bytes) -> bytes:
        position = at % (len(data) + 1)
        return data[:position] + data[position + size :]

    return harm


def repeat(at: int, size: int) -> Harm:
    def harm(data: bytes) -> bytes:
        position = at % (len(data) + 1)
        return data[: position + size] + data[position:]

    return harm


def forge(at: int, length: int, rows: int, op_count: int) -> Harm:
    """A frame header with a right checksum that promises what is not there."""

    def harm(data: bytes) -> bytes:
        position = at % (len(data) + 1) & ~7
        number = int.from_bytes(data[16:24], "little")
        frame = frames.Frame(1, rows, op_count, 0, 0, last_seq(), length, 0)
        forged = frame.encode(header(min(number, 9)).salt)
        return data[:position] + forged + data[position + len(forged) :]

    return harm


positions = st.integers(0, 2**16)
some_bytes = st.binary(min_size=1, max_size=600)
sizes = st.one_of(st.integers(1, 16), st.sampled_from([8, 64, 72, 512, 4096]))
harms = st.one_of(
    st.builds(flip, positions, st.integers(1, 255)),
    st.builds(overwrite, positions, some_bytes),
    st.builds(overwrite, positions, st.integers(1, 5000).map(bytes)),
    st.builds(insert, positions, some_bytes),
    st.builds(cut, positions),
    st.builds(remove, positions, sizes),
    st.builds(repeat, positions, sizes),
    st.builds(
        forge,
        positions,
        st.sampled_from([72, 80, 1024, 65536, limits.FRAME_BYTES_MAX]),
        st.integers(0, 2**32 - 1),
        st.integers(0, 2**32 - 1),
    ),
)


@st.composite
def damaged(draw: st.DrawFn) -> Files:
    files = dict(journal_files())
    for _ in range(draw(st.integers(1, 4))):
        name = draw(st.sampled_from(sorted(files)))
        files[name] = draw(harms)(files[name])
    return files


# -- what must hold -------------------------------------------------------------------------------

fuzzed = settings(max_examples=150, deadline=5000, suppress_health_check=[HealthCheck.too_slow])


@fuzzed
@given(damaged())
def test_the_reader_raises_nothing_but_what_it_declares(files: Files) -> None:
    disk = place(files)
    found = {}
    damaged_path = "/journal/"
    try:
        journal = Journal(disk, "/journal")
        journal.synced_claim(journal.segments[-1], frames.SEGMENT_HEADER_BYTES)
        for located in journal.frames(1, durable_seq=last_seq()):
            found[located.frame.first_seq] = located.body
    except CorruptionError as error:
        damaged_path = error.path
    assert damaged_path.startswith("/journal/")
    assert found.items() <= whole_frames().items(), "nothing is served that was not written"


@fuzzed
@given(damaged())
def test_what_a_survey_makes_out_was_written_and_is_what_a_repair_keeps(files: Files) -> None:
    disk = place(files)
    try:
        before = said(disk)
        report = inspect.verify(disk, "/journal", durable_seq=last_seq())
    except CorruptionError:
        return  # not even the UUID of the journal is left
    assert before.items() <= written().items()
    assert report.lost_rows + len(before) >= last_seq()
    repair(disk, "/journal", "/quarantine", durable_seq=last_seq())
    assert inspect.verify(disk, "/journal", durable_seq=last_seq()).damages == []
    assert said(disk) == before
    rows = sum(
        one.frame.rows for one in Journal(disk, "/journal").frames(1, durable_seq=last_seq())
    )
    assert rows >= last_seq()


@fuzzed
@given(damaged(), st.integers(1, 3), positions)
def test_explain_raises_nothing_but_what_it_declares(files: Files, segment: int, at: int) -> None:
    disk = place(files)
    try:
        fields = explaining.explain(disk, "/journal", segment, at)
    except (CorruptionError, LookupError):
        return
    assert all(before.end == after.offset for before, after in itertools.pairwise(fields))


@settings(max_examples=20, deadline=20_000)
@given(damaged())
def test_memory_is_bounded(files: Files) -> None:
    disk = place(files)
    tracemalloc.start()
    try:
        list(inspect.dump(disk, "/journal", durable_seq=last_seq()))
        inspect.verify(disk, "/journal", durable_seq=last_seq())
    except CorruptionError:
        pass  # not even the UUID of the journal is left
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < MEMORY_BYTES_MAX


@given(st.binary(max_size=4096))
@settings(max_examples=200)
def test_a_body_of_any_bytes_is_ops_or_a_value_error(body: bytes) -> None:
    frame = frames.Frame(1, 1, 1 + len(body) % 3, 0, 0, 0, 64 + len(body), 0)
    try:
        found = list(frames.decode_ops(frame, body, 1, 64))
    except ValueError:
        return
    assert sum(op.rows for op, _ in found) == frame.rows
