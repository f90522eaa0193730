"""Fuzz on the wire: whatever comes, nothing but the declared error, in bounded memory."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from array import array
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fjord import commands, limits
from fjord.columns import Strings
from fjord.commands import Batch, Command, Entries, Refusal, Reply
from fjord.errors import Code, RemoteProtocolError
from fjord.wire import RawReply, ReplyDecoder, Request, RequestDecoder, read_reply
from fjord.wire.explain import Line, explain
from tests.property.wire_mutants import ANSWERS, REQUESTS, Mutants
from tests.unit.wire.job_samples import numbers_of
from tests.unit.wire.streams import answered, new_decoder, plain, sent, set_many

# -- mutants --------------------------------------------------------------------------------------


def decode_requests(pieces: list[bytes]) -> tuple[list[Request], bool]:
    """Returns the requests in some bytes, and whether they are nothing but whole requests."""
    decoder = new_decoder()
    found: list[Request] = []
    try:
        for piece in pieces:
            decoder.feed(piece)
            while (request := decoder.next()) is not None:
                found.append(request)
    except RemoteProtocolError:
        return found, False
    return found, decoder.pending_bytes == 0


def check_request_mutant(mutants: Mutants) -> None:
    data = mutants.next()
    found, whole = decode_requests(mutants.pieces(data))
    again, _ = decode_requests([data])
    assert plain(again) == plain(found)  # however it was cut
    lines = check_explained(data)
    if whole and not any(isinstance(request.command, Refusal) for request in found):
        assert [line for line in lines if line.is_problem] == []
    for request in found:
        check_again(request)


def check_again(request: Request) -> None:
    """Checks that a command that was understood is the same when it is sent on."""
    command = request.command
    if isinstance(command, Refusal) or not is_ascii(plain(command)):
        return
    data = sent(command, request.identifier)
    (again,), whole = decode_requests([data])
    assert whole
    assert plain(again.command) == plain(command)


def is_ascii(found: object) -> bool:
    """Says whether all names are ASCII; what is not is no name, and tables refuse it."""
    if isinstance(found, str):
        return found.isascii()
    if isinstance(found, dict):
        return all(map(is_ascii, found.values()))
    return not isinstance(found, list | tuple) or all(map(is_ascii, found))


def check_explained(data: bytes) -> list[Line]:
    lines = explain(data)
    assert b"".join(line.data for line in lines) == data
    return lines


def check_answer_mutant(mutants: Mutants) -> None:
    data = mutants.next()
    decoder = ReplyDecoder()
    check_explained(data)
    try:
        for piece in mutants.pieces(data):
            decoder.feed(piece)
            while (raw := decoder.next()) is not None:
                if isinstance(raw, RawReply):
                    read_reply(commands.Get.row, raw)
    except RemoteProtocolError:
        pass  # the client would close the connection


@pytest.mark.parametrize("seed", range(4))
def test_mutants_of_requests_raise_nothing_but_a_protocol_error(seed: int) -> None:
    mutants = Mutants(REQUESTS, seed)
    for _ in range(8_000):
        check_request_mutant(mutants)


@pytest.mark.parametrize("seed", range(4))
def test_mutants_of_replies_raise_nothing_but_a_protocol_error(seed: int) -> None:
    mutants = Mutants(ANSWERS, seed)
    for _ in range(12_000):
        check_answer_mutant(mutants)


@pytest.mark.parametrize(
    ("corpus", "make"), [(REQUESTS, new_decoder), (ANSWERS, ReplyDecoder)], ids=["to", "from"]
)
def test_no_message_costs_more_memory_than_a_few_times_its_size(
    corpus: list[bytes], make: type[RequestDecoder] | type[ReplyDecoder]
) -> None:
    mutants = Mutants(corpus, 99)
    tracemalloc.start()
    try:
        for _ in range(2_000):
            data = mutants.next()
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            consume(make(), data)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < 64 * limits.KIB + 16 * len(data)
    finally:
        tracemalloc.stop()


def consume(decoder: RequestDecoder | ReplyDecoder, data: bytes) -> None:
    decoder.feed(data)
    try:
        while decoder.next() is not None:
            pass
    except RemoteProtocolError:
        pass  # the connection would be closed


@pytest.mark.soak
def test_mutants_without_end(soak_seconds: float) -> None:
    deadline = time.monotonic() + soak_seconds
    count = 0
    for seed in itertools.count(1_000):
        requests, answers = Mutants(REQUESTS, seed), Mutants(ANSWERS, seed)
        for _ in range(1_000):
            check_request_mutant(requests)
            check_answer_mutant(answers)
        count += 2_000
        print(f"seed {seed}: {count} messages so far")
        if time.monotonic() > deadline:
            break
    assert count > 0


# -- whatever the commands and the replies are ----------------------------------------------------

u64s = st.integers(0, 2**64 - 1)
binary = st.binary(max_size=40)
tables = st.text("abcXYZ019_-", max_size=20)
strings = st.lists(binary, max_size=5).map(Strings.of)
booleans = st.booleans()
u8s = st.integers(0, 255)


def keyed(type_: Any, **options: Any) -> st.SearchStrategy[Any]:
    return st.builds(type_, table=tables, keys=strings, **options)


sets = st.builds(
    set_many,
    tables,
    st.lists(st.tuples(binary, st.integers(0, 255), binary), min_size=1, max_size=5),
    timestamp_us=u64s,
    expires_at_us=u64s,
    ttl_us=u64s,
    overwrite=booleans,
    persist=booleans,
    also=st.none() | strings,
)
operands = st.sampled_from(
    [(commands.Change.NOT, b"", 3), (commands.Change.ADD, b"\xff" * 8, 4)]
    + [(change, b"\1" * 8, 3) for change in (commands.Change.ADD, commands.Change.TRUNCATE)]
)
modifies = st.builds(
    lambda operand, **rest: commands.Modify(
        change=operand[0], operand=operand[1], operand_type=operand[2], **rest
    ),
    operands,
    table=tables,
    key=binary,
    timestamp_us=u64s,
)
u32s = st.integers(0, 2**32 - 1)
numbers_of_jobs = st.lists(u64s, max_size=5)


def make_push(rows: list[tuple[Any, ...]], **rest: Any) -> commands.Push:
    types, priorities, keys, domains, stored, dates, expiries = zip(*rows, strict=True)
    return commands.Push(
        keys=Strings.of(keys),
        domains=Strings.of(domains),
        types=bytes(types),
        values=Strings.of(stored),
        priorities=bytes(priorities),
        process_at_us=array("Q", dates),
        expires_at_us=list(expiries),
        timestamps_us=[rest.pop("timestamp_us")] * len(rows),
        **rest,
    )


pushes = st.builds(
    make_push,
    st.lists(st.tuples(u8s, u8s, binary, binary, binary, u64s, u64s), min_size=1, max_size=5),
    table=tables,
    timestamp_us=u64s,
    relative=booleans,
)
job_commands: st.SearchStrategy[Command] = st.one_of(
    pushes,
    st.builds(commands.Finish, table=tables, xids=numbers_of_jobs),
    st.builds(commands.Extend, table=tables, xids=numbers_of_jobs, lease_us=u64s),
    st.builds(
        commands.Fail,
        table=tables,
        xids=numbers_of_jobs,
        delay_us=u64s,
        counts=booleans,
        buries=booleans,
        reason=binary,
    ),
    keyed(commands.Cancel),
    keyed(
        commands.Reschedule,
        priority=st.none() | u32s,
        process_at_us=st.none() | u64s,
        relative=booleans,
    ),
    keyed(commands.Bury, reason=binary),
    st.builds(commands.Revive, table=tables, rows=numbers_of_jobs, delay_us=u64s),
    st.builds(commands.Discard, table=tables, rows=numbers_of_jobs),
    st.builds(commands.Peek, table=tables, state=u32s, start=binary, count=u64s, domain=binary),
    keyed(commands.Find),
    st.builds(commands.CountJobs, table=tables, domain=binary, generations=st.booleans()),
)
inner_commands: st.SearchStrategy[Command] = st.one_of(
    st.just(commands.Nop()),
    job_commands,
    sets,
    keyed(commands.Get, with_data=booleans, skip_worked=booleans),
    keyed(
        commands.Touch,
        extend=booleans,
        expires_at_us=u64s,
        worked_until_us=u64s,
        with_data=booleans,
    ),
    keyed(commands.Delete, timestamp_us=u64s, purge=booleans),
    modifies,
    st.builds(
        commands.Rename, table=tables, key=binary, to=binary, timestamp_us=u64s, overwrite=booleans
    ),
    keyed(commands.Lock),
    keyed(commands.Unlock),
    st.builds(
        commands.Range,
        table=tables,
        start=binary,
        stop=binary,
        count=u64s,
        regex=binary,
        with_data=booleans,
        skip_worked=booleans,
    ),
    st.builds(
        commands.CreateTable,
        name=tables,
        kind=st.integers(0, 255),
        settings=binary,
        changes=st.booleans(),
    ),
    st.builds(commands.DropTable, name=tables),
    st.builds(commands.ListTables, name=tables),
)
all_commands: st.SearchStrategy[Command] = st.one_of(
    inner_commands,
    st.builds(
        commands.Next,
        table=tables,
        count=u64s,
        domain=binary,
        lease_us=u64s,
        wait_us=u64s,
        done=booleans,
    ),
    st.builds(commands.ListenJobs, table=tables),
    keyed(commands.Listen),
    st.builds(commands.Unlisten, identifier=st.integers(0, 0xFFFF)),
    st.just(commands.Stats()),
    st.builds(commands.Hello, client=st.binary(min_size=16, max_size=16).filter(any)),
    st.builds(
        commands.Scan,
        table=tables,
        start_seq=u64s,
        end_seq=u64s,
        bytes_max=st.integers(0, 2**32 - 1),
    ),
    st.builds(Batch, commands=st.lists(inner_commands, min_size=1, max_size=5)),
)


@settings(max_examples=400, derandomize=True)
@given(all_commands, st.integers(0, 0xFFFF))
def test_decode_of_encode_is_the_command(command: Command, identifier: int) -> None:
    number = identifier if type(command).row.flags & commands.Flag.NUMBER else 0
    data = sent(command, identifier, number)
    (request,), whole = decode_requests([data])
    assert whole
    assert (request.function, request.identifier) == (type(command).row.number, identifier)
    assert request.number == number
    assert plain(request.command) == plain(command)
    assert [line for line in check_explained(data) if line.is_problem] == []


rows = st.lists(
    st.tuples(st.integers(0, 255), st.integers(0, 3), binary, u64s, u64s, u64s, u64s, u64s),
    max_size=5,
)


def make_entries(found: list[tuple[Any, ...]]) -> Entries:
    types, states, stored, *dates = [[row[at] for row in found] for at in range(8)]
    timestamps, expires, created, accessed, ttls = (array("Q", one) for one in dates)
    return Entries(
        types=bytes(types),
        values=Strings.of(stored),
        timestamps_us=timestamps,
        expires_at_us=expires,
        states=bytes(states),
        created_us=created,
        accessed_us=accessed,
        ttls_us=ttls,
    )


uuids = st.binary(min_size=16, max_size=16).filter(any)
entries = rows.map(make_entries)
tokens = st.builds(commands.Done, master=uuids, seq=u64s)
pages = st.builds(
    lambda found, key, next_key: commands.Page(
        keys=Strings.of([key] * len(found)), entries=make_entries(found), next_key=next_key
    ),
    rows,
    binary,
    binary,
)
numbers = st.lists(st.tuples(binary, u64s, st.integers(0, 255)), max_size=5)
table_lists = numbers.map(
    lambda found: commands.TableList(
        names=Strings.of([name for name, _, _ in found]),
        ids=array("Q", [number for _, number, _ in found]),
        kinds=bytes([kind for _, _, kind in found]),
        settings=Strings.of([name for name, _, _ in found]),
    )
)
job_rows = st.lists(
    st.tuples(u8s, u8s, u8s, binary, binary, binary, binary, *(u64s for _ in range(7))), max_size=4
)


def job_columns(found: list[tuple[Any, ...]], names: list[str]) -> dict[str, Any]:
    """The columns of jobs, from rows that have more than enough of everything."""
    types, priorities, timeouts, keys, domains, stored, _, *dates = [
        [row[at] for row in found] for at in range(14)
    ]
    return {
        **{name: array("Q", column) for name, column in zip(names, dates, strict=False)},
        "types": bytes(types),
        "priorities": bytes(priorities),
        "timeouts": bytes(timeouts),
        "keys": Strings.of(keys),
        "domains": Strings.of(domains),
        "values": Strings.of(stored),
    }


takings = st.builds(
    lambda found, **rest: commands.Taken(**job_columns(found, numbers_of(commands.Taken)), **rest),
    job_rows,
    first_xid=u64s,
    until_us=u64s,
    next_at_us=u64s,
)
job_pages = st.builds(
    lambda found, next_start: commands.JobPage(
        **job_columns(found, numbers_of(commands.JobPage)),
        reasons=Strings.of([row[6] for row in found]),
        next_start=next_start,
    ),
    job_rows,
    binary,
)
acted = st.builds(
    commands.Acted, master=uuids, seq=u64s, missing=numbers_of_jobs, dropped=numbers_of_jobs
)
named_numbers = numbers.map(
    lambda found: commands.Numbers(
        names=Strings.of([name for name, _, _ in found]),
        values=array("Q", [number for _, number, _ in found]),
    )
)
refusals = st.builds(Refusal, code=st.sampled_from(Code), text=st.text("abc: .", max_size=300))
batched = st.one_of(tokens, entries, pages, table_lists, named_numbers, job_pages, acted, refusals)
replies: st.SearchStrategy[Reply] = st.one_of(
    batched,
    takings,
    st.builds(commands.Welcome, client=uuids, master=uuids, version=st.text(max_size=9)),
    st.lists(batched, max_size=4).map(lambda found: commands.Replies(replies=found)),
)


@settings(max_examples=400, derandomize=True)
@given(replies)
def test_decode_of_encode_is_the_reply(reply: Reply) -> None:
    data = answered(reply)
    decoder = ReplyDecoder()
    decoder.feed(data)
    raw = decoder.next()
    assert isinstance(raw, RawReply)
    assert plain(read_reply(commands.Get.row, raw)) == plain(reply)
    assert [line for line in check_explained(data) if line.is_problem] == []


@settings(max_examples=300, derandomize=True)
@given(st.binary(max_size=200), st.sampled_from([b"", b"FJ\0\1", b"JR\0\1"]))
def test_any_bytes_are_explained(data: bytes, start: bytes) -> None:
    check_explained(start + data)
