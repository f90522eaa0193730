"""Explains messages: every byte of requests, replies and changes by its name and meaning.

It follows the same rules as the decoders, and raises nothing: where bytes are not the protocol, or
end too early, it says so and names the rest as such.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from fjord import limits
from fjord.commands import Reply, ScannedArrow, Welcome
from fjord.wire import batch, reply_bodies
from fjord.wire.functions import (
    FUNCTIONS,
    LAST_SEED_FUNCTION,
    QUERY_BITS,
    QUERY_CURSOR,
    REPLY_FLAGS,
    VALUE_BITS,
    VERSION,
    Flag,
    Function,
    flag_names,
    unknown_flag,
)
from fjord.wire.layouts import ARGUMENTS, REPLY_BODIES, REQUEST_BODIES
from fjord.wire.walk import Line, StoppedError, Walk, shown, shown_type, shown_value

__all__ = ["Line", "explain"]

_HEADER_ONLY = (Function.NOP, Function.QUIT, Function.PING)
_NEEDS_VALUE = (Function.SET, Function.ADD, Function.TRUNCATE)
_TWO_KEYS = (Function.RENAME,)
_BY_XID = (Function.DONE, Function.TOUCH)
_KEY_NAMES = {0: "key", Flag.QUERY_RANGE: "key", Flag.QUERY_REGEX: "regex", QUERY_CURSOR: "cursor"}
_OPAQUE = "as the server gave it out; it means nothing to a client"
_ONE_KEY_FLAGS = Flag.TIMEOUT | Flag.UPDATE_TIMEOUT | Flag.LISTEN


def explain(data: bytes, reply_to: Function | None = None) -> list[Line]:
    """Names every byte of one or more messages.

    Args:
        data: Requests, replies and changes, in any order.
        reply_to: What replies answer whose requests do not stand before them.
    """
    lines: list[Line] = []
    walk = Walk(data, 0, len(data), lines)
    asked: dict[int, Function] = {}
    try:
        while walk.position < walk.end:
            walk.start = walk.position
            if data.startswith(b"J", walk.position):
                _reply(walk, asked, reply_to)
            else:
                _request(walk, asked)
    except StoppedError as error:
        walk.stop(str(error))
    return lines


# -- requests -------------------------------------------------------------------------------------


def _request(walk: Walk, asked: dict[int, Function]) -> None:
    _magic(walk, b"FJ")
    number = walk.number(2, "function")
    function = FUNCTIONS.get(number)
    if function is None:
        raise StoppedError(f"function {number} does not exist in this version")
    walk.explain(f"{number}, {function.name}")
    identifier = walk.number(2, "identifier")
    flags = _flags(walk)
    problem = unknown_flag(function, flags)
    if problem:
        raise StoppedError(problem)
    walk.time("timestamp")
    asked[identifier] = function
    if function <= LAST_SEED_FUNCTION:
        _seed_fields(walk, function, flags)
    else:
        _body(walk, function, flags)


def _magic(walk: Walk, expected: bytes) -> None:
    found = walk.data[walk.position : walk.position + 2]
    if not expected.startswith(found):
        raise StoppedError("a message begins with FJ or JR")
    walk.take(2, "magic", "a request or a change" if expected == b"FJ" else "a reply")
    version = walk.number(2, "version")
    if version != VERSION:
        raise StoppedError(f"supported versions: {VERSION}")


def _flags(walk: Walk) -> int:
    flags = walk.number(2, "flags")
    walk.explain(f"{flags:#06x} {' '.join(flag_names(flags))}".rstrip())
    return flags


def _seed_fields(walk: Walk, function: Function, flags: int) -> None:
    if function in _HEADER_ONLY:
        return
    query = flags & QUERY_BITS
    if query and flags & _ONE_KEY_FLAGS:
        raise StoppedError("bits 3, 4 and 11 are not known to GET with a query")
    if flags & Flag.TIMEOUT:
        walk.time("timeout")
    if flags & Flag.TTL:
        walk.explain(f"{walk.number(8, 'ttl')} microseconds")
    if query == Flag.QUERY_RANGE or flags & Flag.COUNT:
        walk.number(2, "count")
    if function in _BY_XID:
        _job_key(walk, flags)
    else:
        _sized(walk, flags, "domain" if function is Function.NEXT else _KEY_NAMES[query])
    if query == Flag.QUERY_RANGE or function in _TWO_KEYS:
        _sized(walk, flags, "second key")
    if flags & VALUE_BITS or function in _NEEDS_VALUE:
        _value(walk, flags, function.name)


def _sized(walk: Walk, flags: int, name: str) -> None:
    size = walk.number(2 if flags & Flag.KEY_16 else 1, f"size of the {name}")
    found = walk.take(size, name)
    if found:
        walk.explain(_OPAQUE if name == "cursor" else shown(found))


def _key(walk: Walk, flags: int) -> None:
    _sized(walk, flags, "key")


def _job_key(walk: Walk, flags: int) -> None:
    """Explains the key that names a job that was taken: its xid, and its own key."""
    size = walk.number(2 if flags & Flag.KEY_16 else 1, "size of xid and key")
    if size >= 8:
        walk.number(8, "xid")
        size -= 8
    found = walk.take(size, "key")
    if found:
        walk.explain(shown(found))


def _value(walk: Walk, flags: int, owner: str) -> None:
    bits = (flags & VALUE_BITS) >> 1
    if not bits:
        raise StoppedError(f"{owner} needs a value: set bits 1-2")
    size = walk.number((0, 1, 2, 4)[bits], "size of the value")
    if size == 0:
        raise StoppedError("a value's size counts its type byte")
    if size > 1 + limits.VALUE_BYTES_MAX:
        raise StoppedError(f"a value has at most {limits.VALUE_BYTES_MAX} bytes")
    walk.explain(f"{size}: type and {size - 1} bytes")
    type_ = walk.number(1, "type")
    walk.explain(shown_type(type_))
    found = walk.take(size - 1, "value")
    if found:
        walk.explain(shown_value(type_, found))


def _body(walk: Walk, function: Function, flags: int) -> None:
    size = walk.number(4, "body length")
    if size > limits.MESSAGE_BYTES_MAX:
        raise StoppedError(f"a body has at most {limits.MESSAGE_BYTES_MAX} bytes")
    _inside(walk, size, lambda inner: _request_body(inner, function, flags))


def _request_body(walk: Walk, function: Function, flags: int) -> None:
    rows = _head(walk, function)
    if function in batch.HELD:
        for position in range(1, rows + 1):
            _inner_request(walk, function, position)
        return
    for step in REQUEST_BODIES[function]:
        if step.is_in(flags):
            # A column with a count of its own has said so itself.
            walk.step(step, None if step.flag & Flag.COUNT else rows)


def _head(walk: Walk, function: Function) -> int:
    length = walk.number(2, "name length")
    walk.zeros(2)
    rows = walk.number(4, "rows")
    argument = ARGUMENTS.get(function, "argument")
    if argument == "expires at":
        walk.time(argument)
    elif function is Function.LAG:
        walk.seq(argument)
    else:
        walk.number(8, argument)
    name = walk.take(length, "table")
    if name:
        walk.explain(shown(name))
    walk.padding()
    if rows > limits.BATCH_ROWS_MAX:
        raise StoppedError(f"a batch has at most {limits.BATCH_ROWS_MAX} rows")
    return rows


def _inner_request(walk: Walk, outer: Function, position: int) -> None:
    number = walk.number(2, f"command {position}: function")
    function = FUNCTIONS.get(number)
    if function not in batch.HELD[outer]:
        raise StoppedError(f"function {number} has no place in {batch.NAMES[outer]}")
    walk.explain(f"{number}, {function.name}")
    flags = _flags(walk)
    problem = unknown_flag(function, flags)
    if problem:
        raise StoppedError(problem)
    size = walk.number(4, "body length")
    walk.time("timestamp")
    if function is not Function.NOP:
        _inside(walk, size, lambda inner: _request_body(inner, function, flags))
    elif size:
        raise StoppedError("NOP has no body")
    walk.padding()


def _inside(walk: Walk, size: int, explain_body: Callable[[Walk], None]) -> None:
    """Explains a body; what is wrong with it stays inside, since its length is known."""
    left = walk.end - walk.position
    if size > left:
        raise StoppedError(f"the body has {size} bytes, but only {left} are left")
    inner = walk.inner(size)
    try:
        explain_body(inner)
    except StoppedError as error:
        inner.stop(str(error))
    else:
        if inner.position < inner.end:
            inner.stop("the body is longer than its columns")
    walk.position += size


# -- replies --------------------------------------------------------------------------------------


def _reply(walk: Walk, asked: dict[int, Function], reply_to: Function | None) -> None:
    _magic(walk, b"JR")
    identifier = walk.number(2, "identifier")
    function = asked.get(identifier, reply_to)
    if function is not None:
        walk.explain(f"{identifier}, a reply to {function.name}")
    flags = _flags(walk)
    query = flags & QUERY_BITS
    paged = flags & Flag.COUNT
    if flags & ~REPLY_FLAGS or query not in (0, QUERY_CURSOR) or (query and not paged):
        raise StoppedError("no reply has these flags")
    if paged and flags & Flag.BODY:
        raise StoppedError("no reply has these flags")
    walk.time("timestamp")
    if flags & Flag.TIMEOUT:
        walk.time("timeout")
    count = walk.number(2, "count") if paged else 0
    _sized(walk, flags, "error")
    if paged:
        _pairs(walk, flags, count, _job_key if function is Function.NEXT else _key)
    elif flags & VALUE_BITS:
        _value(walk, flags, "a reply")
    if flags & Flag.BODY:
        size = walk.number(4, "body length")
        _inside(walk, size, lambda inner: _reply_body(inner, function))


def _pairs(walk: Walk, flags: int, count: int, key: Callable[[Walk, int], None]) -> None:
    for _ in range(count):
        key(walk, flags)
        _value(walk, flags, "a pair")
    if flags & QUERY_BITS:
        _sized(walk, flags, "cursor")


def _reply_body(walk: Walk, function: Function | None) -> None:
    if walk.position == walk.end:
        return  # a refusal
    if function is None or function <= LAST_SEED_FUNCTION:
        walk.take(walk.end - walk.position, "body", "depends on the request, which is not known")
    elif function in batch.ANSWERED_EACH:
        _inner_replies(walk)
    elif function is Function.SCAN and reply_bodies.is_arrow(walk.data, walk.position):
        _reply_steps(walk, ScannedArrow)
    else:
        _reply_steps(walk, reply_bodies.REPLY_TYPES[function])


def _reply_steps(walk: Walk, type_: type[Reply]) -> None:
    for step in REPLY_BODIES[type_]:
        # The one column without a count before it has one row.
        walk.step(step, 1 if type_ is Welcome else None)


def _inner_replies(walk: Walk) -> None:
    rows = walk.number(4, "rows")
    walk.zeros(4)
    for position in range(1, rows + 1):
        kind = walk.number(2, f"reply {position}: kind")
        type_ = batch.TYPES.get(kind)
        if type_ is None and kind != batch.REFUSED:
            raise StoppedError(f"a reply of kind {kind}")
        walk.explain(f"{kind}, {type_.__name__ if type_ else 'refused'}")
        error_size = walk.number(2, "size of the error")
        size = walk.number(4, "body length")
        error = walk.take(error_size, "error")
        if error:
            walk.explain(shown(error))
        if type_ is not None:
            _inside(walk, size, functools.partial(_reply_steps, type_=type_))
        else:
            walk.take(size, "body", "of a refusal")
        walk.padding()
