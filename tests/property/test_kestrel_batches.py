"""Random journals of every dialect, cut and flipped: ops that are read many at a time are those
that are read one by one, and do the same."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord.kestrel import codec, reader
from fjord.kestrel.codec import Broken, Decoder, Placed
from fjord.kestrel.items import Items
from fjord.kestrel.journal import Journal
from tests.unit.kestrel import vectors
from tests.unit.kestrel.directory import QUEUE, journal_of, made_disk, put
from tests.unit.kestrel.vectors import ADD_MS, copied, encoded, going_on, item, named

ITEM_BYTES_MAX = 60

XIDS = st.sampled_from([1, 2, 3, -7, 0])
TIMES = st.sampled_from([ADD_MS, ADD_MS + 1, 0, -1])
SIZES = st.sampled_from([5, 0, 1, 20, ITEM_BYTES_MAX])
DATA = st.builds(lambda size, fill: bytes((fill,)) * size, SIZES, st.integers(0, 255))
TOO_LARGE = encoded(item(bytes(ITEM_BYTES_MAX + 1)))
ADDX = st.builds(
    lambda data, ms, end: vectors.addx(data, add_ms=ms, expiry_ms=end), DATA, TIMES, TIMES
)
FREQUENT = st.one_of(
    *[ADDX] * 3,
    st.just(codec.remove()),
    *(XIDS.map(make) for make in (codec.remove_tentative, codec.confirm_remove)),
    *(XIDS.map(make) for make in (codec.unremove, codec.save_xid)),
)
SECONDS = st.integers(0, 2**32 - 1)
ANY = st.one_of(
    FREQUENT,
    FREQUENT,
    st.builds(lambda data, s: vectors.add(data, expiry_ms=s * 1000), DATA, SECONDS),
    *(st.builds(make, XIDS, DATA) for make in (named, going_on)),
    st.builds(vectors.state_dump, XIDS, st.integers(0, 3)),
)
RUNS = st.integers(0, 60).map(lambda count: encoded(codec.remove()) * count)
PARTS = [
    FREQUENT.map(encoded),
    st.one_of(ADDX, ADDX, FREQUENT).map(encoded),  # more than memory holds
    st.one_of(ANY.map(encoded), RUNS),
]


@st.composite
def journals(draw: st.DrawFn) -> bytes:
    """Returns the bytes of a journal; half of them are whole."""
    parts = draw(st.sampled_from(PARTS))
    count_min = draw(st.sampled_from([0, 20]))
    data = bytearray(b"".join(draw(st.lists(parts, min_size=count_min, max_size=40))))
    damage = draw(st.sampled_from(["", "", "", "flipped", "cut", "large"])) if data else ""
    if damage == "flipped":
        for _ in range(draw(st.integers(1, 3))):
            data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    elif damage == "cut":
        del data[draw(st.integers(0, len(data) - 1)) :]
    elif damage == "large":
        data += TOO_LARGE + encoded(codec.remove())
    return bytes(data)


@contextlib.contextmanager
def reading_by(*, batch_bytes: int = 64, chunk_bytes: int = 64) -> Iterator[None]:
    """Makes batches and reads so small that a short journal has many borders."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "_BATCH_BYTES", batch_bytes)
        patch.setattr(reader, "_CHUNK_BYTES", chunk_bytes)
        yield


@contextlib.contextmanager
def reading_one_by_one() -> Iterator[None]:
    """Leaves every op to the one that reads any."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "_scan", lambda data, at, size_max: ([at], 0))
        yield


def pieces(data: bytes, step: int) -> Iterator[bytes]:
    for at in range(0, len(data), step):
        yield data[at : at + step]


def plain(data: bytes) -> tuple[list[Placed], Broken | None]:
    decoder = Decoder(item_bytes_max=ITEM_BYTES_MAX)
    with reading_one_by_one():
        decoder.feed(data)
        decoder.end()
        return [copied(placed) for placed in decoder.ops()], decoder.broken


@given(journals(), st.sampled_from([7, 1, 50, 200]), st.sampled_from([0, 20, 100]))
def test_batches_have_the_ops_read_one_by_one(data: bytes, step: int, batch_bytes: int) -> None:
    alone, many = (Decoder(item_bytes_max=ITEM_BYTES_MAX) for _ in range(2))
    found: list[Placed] = []
    batched: list[Placed] = []
    op_count = 0
    with reading_by(batch_bytes=batch_bytes):
        for piece in [*pieces(data, step), b""]:
            alone.feed(piece)
            many.feed(piece)
            if not piece:
                alone.end()
                many.end()
            found += map(copied, alone.ops())
            for batch in many.batches():
                batched += map(copied, batch.ops())
                op_count += batch.op_count
            assert many.wanted_end == alone.wanted_end
    assert (found, alone.broken) == plain(data)
    assert (batched, many.broken) == plain(data)
    assert op_count == len(batched)


@given(journals())
def test_who_takes_one_op_at_a_time_gets_the_same(data: bytes) -> None:
    decoder = Decoder(item_bytes_max=ITEM_BYTES_MAX)
    decoder.feed(data)
    decoder.end()
    found = []
    while (placed := next(decoder.ops(), None)) is not None:
        found.append(copied(placed))
    assert (found, decoder.broken) == plain(data)


@given(
    st.lists(journals(), min_size=1, max_size=3),
    st.sampled_from([200, 100, 300, 0]),
    st.sampled_from([0, 20, 100]),
    st.sampled_from([1000, 50]),
)
def test_a_queue_that_is_opened_holds_what_its_ops_say(
    files: list[bytes], memory_bytes: int, batch_bytes: int, chunk_bytes: int
) -> None:
    with reading_by(batch_bytes=batch_bytes, chunk_bytes=chunk_bytes):
        journal, many = begun(files, memory_bytes)
        for segment, batch in journal.replay(ADD_MS):
            many.apply_batch(batch, segment)
    with reading_one_by_one():
        journal, one = begun(files, memory_bytes)
        for segment, batch in journal.replay(ADD_MS):
            for op, offset, _ in batch.ops():
                one.apply(op, segment, offset)
    many.end_apply()
    one.end_apply()
    assert held(many) == held(one)
    assert drained(many) == drained(one)


def begun(files: list[bytes], memory_bytes: int) -> tuple[Journal, Items]:
    disk = made_disk()
    for number, data in enumerate(files, start=1):
        put(disk, QUEUE if number == len(files) else f"{QUEUE}.{number}", data)
    journal = journal_of(disk, item_bytes_max=ITEM_BYTES_MAX)
    return journal, Items(journal.files, memory_bytes, ADD_MS)


def held(waiting: Items) -> list[object]:
    """Returns what is in memory, what is open, and what a pack would have to hold."""
    marks = waiting.checkpoints
    return [
        (waiting.count, waiting.bytes, waiting.memory_count, waiting.memory_bytes),
        (waiting.open_bytes, waiting.last_xid, waiting.missed, waiting.has_names, waiting.era),
        [(entry.item(), entry.xid) for entry in waiting.entries()],
        [(xid, entry.item(), entry.xid) for xid, entry in waiting.open.items()],
        [
            (
                point.segment.era,
                point.last_xid,
                list(point.open),
                [one if isinstance(one, int) else one.item() for one in marks.taken(point)],
                [entry.item() for entry in waiting.entries() if entry.era <= point.segment.era],
            )
            for point in marks.waiting
        ],
    ]


def drained(waiting: Items) -> list[object]:
    """Takes all that waits; what is behind memory is read for that."""
    found: list[object] = []
    while (entry := waiting.head()) is not None:
        found.append((entry.item(), entry.xid, waiting.memory_bytes, waiting.count))
        waiting.take()
    waiting.close()
    return found
