"""What the index holds of jobs tables, byte by byte.

    JOBS_READY   table id u32 | place                     -> rest
    JOBS_KEYS    table id u32 | slot                      -> place
    JOBS_TAKEN   table id u32 | xid u64                   -> lease, image
    JOBS_LEASES  deadline u64 | table id u32 | xid u64    -> count u32
    JOBS_EXPIRY  expiry u64 | table id u32 | row u64      -> place
    JOBS_DEAD    table id u32 | row u64                   -> death, image

    place  = lane u64, priority u8, process date u64, row u64        big-endian: it sorts
    slot   = murmur3-128 of the key, 0 u8 | 8 bytes of 255, murmur3-128 of the key, probe u8
    image  = place, rest
    rest   = inserted u64, updated u64, expires u64, held u64, murmur3-128 of the key, probe u8,
             timeouts u8, type u8, length of the domain u8,
             pointer (segment, offset, size, crc u32 each), domain, key
    lease  = deadline u64, length u64, started u64, is alone u8
    death  = date u64, how u8, length of the reason u16, reason

The index covers a row: NEXT finds everything about a job here except its value (SJ-03).  A *row* is
identified for ever by the seq of its JOB_ADD; `held` is the seq of the row that holds its value
now.  Keys are found by a hash of all their bytes, since URIs share long prefixes (FJ-15); the key
itself is compared, and `probe` tells keys with the same hash apart.  All but the first of those are
kept together at the end of their table, so that one lookup tells whether there are any.
Probe 255: the key is never looked up.

A taken job is *overtaken* once a newer job of its key was taken: it then never waits again (FJ-32).
From then on its expiry is 1, so that it ends with its lease; no client can set that date.

The note of a lease covers `count` xids, from the first one on.  It is looked up in JOBS_TAKEN when
it is due, so that nothing has to be done before; a note for a single job is deleted with the job.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import mmh3

from fjord import layouts, ops
from fjord.jobs import State
from fjord.layouts import JOB_IMAGE, PREFIX_BYTES
from fjord.tables.state import Pointer, Tree

PLACE: Final = layouts.JOB_PLACE.packed(">")
REST: Final = layouts.JOB_REST.packed()
LEASE: Final = layouts.JOB_LEASE.packed()
DEATH: Final = layouts.JOB_DEATH.packed()
XID: Final = struct.Struct(">Q")
LEASE_KEY: Final = struct.Struct(">QIQ")
COUNT: Final = struct.Struct(">I")
EXPIRY_KEY: Final = layouts.Fields(expires_at_us="Q", table="I", row="Q")

PLACE_BYTES: Final = PLACE.size
# Where the parts of an image are.
ROW_AT: Final = JOB_IMAGE.span("row")
HASH_AT: Final = JOB_IMAGE.span("hash")
_SLOT_AT: Final = JOB_IMAGE.span("hash", "probe")
_BEFORE_HELD: Final = slice(JOB_IMAGE.span("held").start)
_HELD_TO_POINTER: Final = JOB_IMAGE.span("hash", "domain_bytes")
_SIZE_AT: Final = JOB_IMAGE.span("size")
_TAIL_AT: Final = JOB_IMAGE.size
# Where the parts of a row are.
_PLACE_END, _REST_END = len(layouts.JOB_PLACE.codes), len(JOB_IMAGE.codes)
_DOMAIN_BYTES: Final = list(JOB_IMAGE.codes).index("domain_bytes")
_TAKEN_PARTS: Final = JOB_IMAGE.picked("expires_at_us", "held", ("hash", "probe"))
_DONE_PARTS: Final = layouts.JOB_TAKEN.picked("deadline_us", "is_alone", ("row",), "held", "size")
_EXPIRES: Final = JOB_IMAGE.picked("expires_at_us")
_HELD: Final = JOB_IMAGE.picked("held")
_SEQ: Final = struct.Struct("<Q")
_POINTER: Final = layouts.POINTER.packed()
_EXPIRY_HEAD: Final = EXPIRY_KEY.picked("expires_at_us", "table", order=">")

NO_PROBE: Final = 255
OVERTAKEN_US: Final = 1  # the expiry of an overtaken job
# Prefix of the hashes of keys whose hash another key already has.
COLLIDED: Final = b"\xff" * 8
_new: Final = tuple.__new__
digest: Final[Callable[[bytes], bytes]] = mmh3.mmh3_x64_128_digest


# The tree that holds the jobs of a state.
TREES: Final[dict[int, Tree]] = {
    State.WAITING: Tree.JOBS_READY,
    State.TAKEN: Tree.JOBS_TAKEN,
    State.DEAD: Tree.JOBS_DEAD,
}
STATES: Final = {tree: State(state) for state, tree in TREES.items()}


class JobRow(NamedTuple):
    """A job as stored in the index."""

    lane: int  # hash of the domain, 0 without fairness
    priority: int
    process_at_us: int
    row: int
    inserted_us: int
    updated_us: int  # the newest client date that was accepted
    expires_at_us: int  # 0 = never
    held: int
    hash: bytes
    probe: int
    timeouts: int
    type: int
    domain_bytes: int
    segment: int
    offset: int
    size: int
    crc: int
    domain: bytes  # as given
    key: bytes

    @property
    def place(self) -> bytes:
        return PLACE.pack(*self[:_PLACE_END])

    @property
    def image(self) -> bytes:
        rest = REST.pack(*self[_PLACE_END:_REST_END])
        return PLACE.pack(*self[:_PLACE_END]) + rest + self.domain + self.key

    @property
    def slot(self) -> bytes:
        """The key under which the job is found; empty if it is not looked up."""
        return slot(self.hash, self.probe)

    @property
    def pointer(self) -> Pointer:
        return Pointer(self.segment, self.offset, self.size, self.crc, self.held)

    @property
    def live_bytes(self) -> int:
        """What the row counts toward the live bytes of the journal."""
        return ops.ROW_BYTES + len(self.domain) + len(self.key) + self.size

    @property
    def age(self) -> tuple[int, int]:
        """Sorts jobs of one key by age: by the client's date, then by the row."""
        return self.updated_us, self.row

    @property
    def is_overtaken(self) -> bool:
        return self.expires_at_us == OVERTAKEN_US

    def is_expired(self, now_us: int) -> bool:
        return 0 < self.expires_at_us <= now_us


class Lease(NamedTuple):
    """The lease of a taken job; its holder knows the xid."""

    deadline_us: int  # lease time
    lease_us: int  # how long it was taken for
    started_us: int  # wall time of the take, or of the last touch
    is_alone: int  # 1: the note of its deadline stands for this job only


class Death(NamedTuple):
    """Why and when a job went to the dead letters."""

    died_us: int  # wall time
    how: int
    reason: bytes


def decode(image: bytes) -> JobRow:
    numbers = PLACE.unpack_from(image) + REST.unpack_from(image, PLACE_BYTES)
    key_at = _TAIL_AT + numbers[_DOMAIN_BYTES]
    return _new(JobRow, (*numbers, image[_TAIL_AT:key_at], image[key_at:]))


def decode_ready(index_key: bytes, rest: bytes) -> JobRow:
    """Decodes an item of JOBS_READY."""
    numbers = PLACE.unpack_from(index_key, PREFIX_BYTES) + REST.unpack_from(rest)
    key_at = REST.size + numbers[_DOMAIN_BYTES]
    return _new(JobRow, (*numbers, rest[REST.size : key_at], rest[key_at:]))


def encode_death(death: Death) -> bytes:
    return DEATH.pack(death.died_us, death.how, len(death.reason)) + death.reason


def bytes_of(image: bytes) -> int:
    """Returns what a row counts toward the live bytes of the journal."""
    return ops.ROW_BYTES + len(image) - _TAIL_AT + int.from_bytes(image[_SIZE_AT], "little")


def slot(hash_: bytes, probe: int) -> bytes:
    """Returns the key under which a job is found; empty if it is not looked up."""
    if probe == 0:
        return hash_ + b"\0"
    return b"" if probe == NO_PROBE else COLLIDED + hash_ + bytes((probe,))


def slot_of(image: bytes) -> bytes:
    found = image[_SLOT_AT]
    return found if found[-1] == 0 else slot(found[:-1], found[-1])


def taken_parts(images: Sequence[bytes]) -> tuple[Sequence[int], Sequence[int], list[bytes]]:
    """Returns expiries, the seqs that hold the values, and slots of many images."""
    if not images:
        return (), (), []
    found = [_TAKEN_PARTS.unpack_from(image) for image in images]
    expiries, held, slots = zip(*found, strict=True)
    return expiries, held, [one if one[-1] == 0 else slot(one[:-1], one[-1]) for one in slots]


def done_parts(taken: Sequence[bytes]) -> tuple[list[int], list[int], list[int], list[int]]:
    """Returns of many items of JOBS_TAKEN: notes to delete with them, rows, held, live bytes."""
    found = [_DONE_PARTS.unpack_from(data) for data in taken]
    row_bytes = ops.ROW_BYTES - LEASE.size - _TAIL_AT
    return (
        [deadline if is_alone else 0 for deadline, is_alone, _, _, _ in found],
        [int.from_bytes(row, "big") for _, _, row, _, _ in found],
        [held for _, _, _, held, _ in found],
        [row_bytes + len(d) + part[4] for d, part in zip(taken, found, strict=True)],
    )


def row_of(image: bytes) -> int:
    return int.from_bytes(image[ROW_AT], "big")


def held_of(image: bytes) -> int:
    held: int = _HELD.unpack_from(image)[0]
    return held


def expiry_of(image: bytes) -> int:
    """Returns when a job expires, 0 = never."""
    expiry: int = _EXPIRES.unpack_from(image)[0]
    return expiry


def expiry_key(expires_at_us: int, table: int, place: bytes) -> bytes:
    return _EXPIRY_HEAD.pack(expires_at_us, table) + place[ROW_AT]


def moved(image: bytes, held: int, pointer: Pointer) -> bytes:
    """Returns the image of a job whose value was moved."""
    return b"".join(
        (
            image[_BEFORE_HELD],
            _SEQ.pack(held),
            image[_HELD_TO_POINTER],
            _POINTER.pack(*pointer[:4]),
            image[_TAIL_AT:],
        )
    )


def lane_of(domain: bytes) -> int:
    """Returns the lane of a domain; never 0, which is the only lane of tables without fairness.

    The hash is long enough that nobody can find a domain that shares the lane of another one.
    """
    return int.from_bytes(hashlib.blake2b(domain, digest_size=8).digest(), "big") or 1
