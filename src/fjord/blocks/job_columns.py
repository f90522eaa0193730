"""Columns of jobs: what ops carry of a job as its image or its place, and its domain.

    place   lane u64, priority u8, process date u64, row u64                        big-endian
    image   place, then inserted u64, updated u64, expires u64, held u64, hash of the key, probe u8,
            timeouts u8, type u8, length of the domain u8, where the value rests, domain, key

docs/journal-format.md has all of it; here are the positions of what is shown.  As everywhere in
this package there is no step in Python for each row, and nothing is read before it is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute

from fjord import limits
from fjord.blocks import decoding
from fjord.jobs import How, State
from fjord.ops import Opcode
from fjord.values import Type

OPCODES: Final = frozenset(
    {
        Opcode.JOB_ADD,
        Opcode.JOB_REPLACE,
        Opcode.JOB_MOVE,
        Opcode.JOB_TAKE,
        Opcode.JOB_DONE,
        Opcode.JOB_WAIT,
        Opcode.JOB_BURY,
        Opcode.JOB_REMOVE,
    }
)
# What ops are called that say why they came; the first has the number 1.
HOW_NAMES: Final = [how.name for how in How]

_PLACE_BYTES: Final = 25
_PRIORITY: Final = 8
_PROCESS_AT: Final = 9
_ROW: Final = 17
_EXPIRES_AT: Final = 41
_TIMEOUTS: Final = 74
_TYPE: Final = 75
_DOMAIN_BYTES: Final = 76
_TAIL: Final = 93  # domain and key

# The host of the first URI, as in `fjord.jobs`; RE2 does not count \v as a space.
_HOST: Final = (
    rb"[A-Za-z0-9+.\-]+://(?:[^/?#\s\v]*@)?"
    rb"(?P<host>\[[^\]/?#\s\v]*\]|[^/?#:\s\v]*)"
)
# The same for most keys, which begin with a plain URI; RE2 finds it six times as fast.
_PLAIN_HOST: Final = rb"^[A-Za-z0-9+.\-]+://(?P<host>[^/?#:@\[\s\v]*)(?::[0-9]*)?(?:[/?#]|$)"


def complete(opcode: Opcode, stored: Mapping[str, Any], seqs: Any) -> dict[str, Any]:
    """Returns the columns of ops on jobs together with what follows from them.

    Raises:
        FjordError: if these are no such ops.
    """
    found = dict(stored)
    if "image" in stored:
        found = {**read_images(stored["image"]), **stored}
    elif "place" in stored:
        found = {**read_places(stored["place"]), **stored}
    if "key" in found:
        found["domain"] = domains(found["domain"], found["key"])
    if opcode in _PUSHED:
        found["timeouts"] = pa.repeat(pa.scalar(0, pa.uint8()), len(seqs))
    elif opcode is Opcode.JOB_BURY:
        found["type"] = pa.repeat(pa.scalar(int(Type.STRING), pa.uint8()), len(seqs))
        found["value"] = stored["reason"]
    elif "value" not in stored:
        found.pop("type", None)
    if opcode in _NAMED:
        # One that is 0 becomes the largest, and there is no such name either.
        positions = compute.subtract(stored["how"], pa.scalar(1, pa.uint8()))
        found["op"] = decoding.take(pa.array(HOW_NAMES), positions)
    if opcode is Opcode.JOB_MOVE:
        found["op"] = compute.if_else(_is_in(State.DEAD, stored), "MOVE_DEAD", "MOVE")
    if opcode is Opcode.JOB_TAKE:
        found["xid"] = seqs
    elif "at" in stored:  # xid of a taken job, row of a dead one
        found["xid"] = compute.if_else(_is_in(State.TAKEN, stored), stored["at"], None)
    return found


def _is_in(state: State, stored: Mapping[str, Any]) -> Any:
    return compute.equal(stored["state"], pa.scalar(int(state), pa.uint8()))


_PUSHED: Final = frozenset({Opcode.JOB_ADD, Opcode.JOB_REPLACE})
_NAMED: Final = frozenset({Opcode.JOB_WAIT, Opcode.JOB_REMOVE})


def read_places(places: Any) -> dict[str, Any]:
    """Returns what a column of places says, under the names of the columns of ops.

    Raises:
        FjordError: if these are no places.
    """
    if compute.min(compute.binary_length(places)).as_py() < _PLACE_BYTES:
        raise decoding.damaged()
    return {
        "priority": _u8(places, _PRIORITY),
        "process_at_us": _big_u64(places, _PROCESS_AT),
        "row": _big_u64(places, _ROW),
    }


def read_images(images: Any) -> dict[str, Any]:
    """Returns what a column of images says, under the names of the columns of ops.

    Raises:
        FjordError: if these are no images.
    """
    lengths = compute.binary_length(images).cast(pa.int64())
    if compute.min(lengths).as_py() < _TAIL:
        raise decoding.damaged()
    domain, key = _tails(images, lengths)
    return {
        **read_places(images),
        "expires_at_us": _u64(images, _EXPIRES_AT),
        "timeouts": _u8(images, _TIMEOUTS),
        "type": _u8(images, _TYPE),
        "domain": domain,
        "key": key,
    }


def _tails(images: Any, lengths: Any) -> tuple[Any, Any]:
    """Returns domains as they were given, and keys."""
    sizes = _u8(images, _DOMAIN_BYTES).cast(pa.int64())
    if compute.max(sizes).as_py() == 0:  # most jobs have none, and this is five times as fast
        none = pa.repeat(pa.scalar(b"", pa.binary()), len(images))
        return none, compute.binary_slice(images, _TAIL, compute.max(lengths).as_py())
    ends = compute.add(sizes, decoding.number(_TAIL))
    if not compute.all(compute.less_equal(ends, lengths)).as_py():
        raise decoding.damaged()
    data, starts = _bytes(images), compute.add(_starts(images), decoding.number(_TAIL))
    return (
        decoding.join(data, starts, sizes),
        decoding.join(data, compute.add(starts, sizes), compute.subtract(lengths, ends)),
    )


def domains(given: Any, keys: Any) -> Any:
    """Returns the domain of each job as text: as it was given, or that of its key, or null."""
    own = compute.ascii_lower(_text(compute.binary_slice(_hosts(keys), 0, limits.DOMAIN_BYTES_MAX)))
    named = compute.if_else(_is_empty(given), own, _text(given))
    return compute.if_else(_is_empty(named), None, named)


def _hosts(keys: Any) -> Any:
    """Returns the host of the first URI in each key, null or nothing where there is none."""
    hosts = compute.struct_field(compute.extract_regex(keys, _PLAIN_HOST), "host")
    is_other = compute.is_null(hosts)
    if not compute.any(is_other).as_py():
        return hosts
    others = compute.extract_regex(keys.filter(is_other), _HOST)
    return compute.replace_with_mask(hosts, is_other, compute.struct_field(others, "host"))


def _is_empty(strings: Any) -> Any:
    return compute.equal(compute.binary_length(strings), pa.scalar(0, pa.int32()))


def _text(strings: Any) -> Any:
    """Returns bytes as text; what is no UTF-8 is replaced."""
    try:
        return strings.cast(pa.string())
    except pa.ArrowInvalid:
        found = [
            None if one is None else one.decode(errors="replace") for one in strings.to_pylist()
        ]
        return pa.array(found, pa.string())


# -- numbers at a position of each string ---------------------------------------------------------


def _u8(strings: Any, position: int) -> Any:
    return _numbers(pa.uint8(), compute.binary_slice(strings, position, position + 1))


def _u64(strings: Any, position: int) -> Any:
    return _numbers(pa.int64(), compute.binary_slice(strings, position, position + 8))


def _big_u64(strings: Any, position: int) -> Any:
    cut = compute.binary_slice(strings, position, position + 8)
    return _numbers(pa.int64(), compute.binary_reverse(cut))


def _numbers(kind: Any, strings: Any) -> Any:
    """Takes strings of one length, which lie side by side, for numbers."""
    assert strings.offset == 0
    return pa.Array.from_buffers(kind, len(strings), [None, strings.buffers()[2]])


def _starts(strings: Any) -> Any:
    """Returns where each string begins in the bytes of all of them."""
    offsets = strings.buffers()[1]
    edges = pa.Array.from_buffers(pa.int32(), strings.offset + len(strings), [None, offsets])
    return edges.slice(strings.offset).cast(pa.int64())


def _bytes(strings: Any) -> Any:
    data = strings.buffers()[2]
    return pa.Array.from_buffers(pa.uint8(), data.size, [None, data])
