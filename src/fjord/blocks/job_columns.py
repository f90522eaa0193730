"""Columns of jobs: what ops carry of a job as its image or its place, and its domain.

As everywhere in this package there is no step in Python for each row, and nothing is read before
it is checked.  `fjord.layouts` knows where a field is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from pyarrow import compute

from fjord import jobs, limits
from fjord.blocks import decoding
from fjord.jobs import How, State
from fjord.layouts import JOB_IMAGE, JOB_PLACE
from fjord.ops import Opcode
from fjord.values import Type

OPCODES: Final = frozenset(
    opcode for opcode in Opcode if opcode.shown is not None and opcode.name.startswith("JOB_")
)
# What ops are called that say why they came; the first has the number 1.
HOW_NAMES: Final = [how.name for how in How]

_NUMBERS: Final = {"B": pa.uint8(), "Q": pa.int64()}


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
    if "domain" in stored:  # just pushed
        found["timeouts"] = pa.repeat(pa.scalar(0, pa.uint8()), len(seqs))
    elif opcode is Opcode.JOB_BURY:
        found["type"] = pa.repeat(pa.scalar(int(Type.STRING), pa.uint8()), len(seqs))
        found["value"] = stored["reason"]
    elif "value" not in stored:
        found.pop("type", None)
    if not opcode.shown and "how" in stored:  # each row says what it is
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


def read_places(places: Any) -> dict[str, Any]:
    """Returns what a column of places says, under the names of the columns of ops.

    Raises:
        FjordError: if these are no places.
    """
    if compute.min(compute.binary_length(places)).as_py() < JOB_PLACE.size:
        raise decoding.damaged()
    return {name: _numbers(places, name) for name in ("priority", "process_at_us", "row")}


def read_images(images: Any) -> dict[str, Any]:
    """Returns what a column of images says, under the names of the columns of ops.

    Raises:
        FjordError: if these are no images.
    """
    lengths = compute.binary_length(images).cast(pa.int64())
    if compute.min(lengths).as_py() < JOB_IMAGE.size:
        raise decoding.damaged()
    domain, key = _tails(images, lengths)
    return {
        **read_places(images),
        **{name: _numbers(images, name) for name in ("expires_at_us", "timeouts", "type")},
        "domain": domain,
        "key": key,
    }


def _tails(images: Any, lengths: Any) -> tuple[Any, Any]:
    """Returns domains as they were given, and keys."""
    sizes = _numbers(images, "domain_bytes").cast(pa.int64())
    if compute.max(sizes).as_py() == 0:  # most jobs have none, and this is five times as fast
        none = pa.repeat(pa.scalar(b"", pa.binary()), len(images))
        return none, compute.binary_slice(images, JOB_IMAGE.size, compute.max(lengths).as_py())
    ends = compute.add(sizes, decoding.number(JOB_IMAGE.size))
    if not compute.all(compute.less_equal(ends, lengths)).as_py():
        raise decoding.damaged()
    data, starts = _bytes(images), compute.add(_starts(images), decoding.number(JOB_IMAGE.size))
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
    hosts = compute.struct_field(compute.extract_regex(keys, jobs.PLAIN_HOST), "host")
    is_other = compute.is_null(hosts)
    if not compute.any(is_other).as_py():
        return hosts
    others = compute.extract_regex(keys.filter(is_other), jobs.HOST)
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


# -- fields of each string ------------------------------------------------------------------------


def _numbers(images: Any, name: str) -> Any:
    """Returns a field of each image, or of each place, with which an image begins."""
    where = JOB_IMAGE.span(name)
    cut = compute.binary_slice(images, where.start, where.stop)
    if name in JOB_PLACE.codes:
        cut = compute.binary_reverse(cut)
    assert cut.offset == 0  # so they lie side by side
    return pa.Array.from_buffers(
        _NUMBERS[JOB_IMAGE.codes[name]], len(cut), [None, cut.buffers()[2]]
    )


def _starts(strings: Any) -> Any:
    """Returns where each string begins in the bytes of all of them."""
    offsets = strings.buffers()[1]
    edges = pa.Array.from_buffers(pa.int32(), strings.offset + len(strings), [None, offsets])
    return edges.slice(strings.offset).cast(pa.int64())


def _bytes(strings: Any) -> Any:
    data = strings.buffers()[2]
    return pa.Array.from_buffers(pa.uint8(), data.size, [None, data])
