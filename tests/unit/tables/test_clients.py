"""Clients that retry: a numbered batch counts once, its answer is kept, and all in bounds."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fjord import commands, limits
from fjord.columns import Strings
from fjord.commands import Done, Replies
from fjord.errors import Code
from fjord.ops import Op, Opcode
from fjord.tables import clients
from fjord.tables.clients import ForgetClients
from fjord.tables.state import Tree
from tests.unit.tables.world import MASTER, NOW_US, World, code_of, set_command
from tests.unit.wire.samples import COMMANDS

CLIENT = b"the client's id."
OTHER = b"another clients."
HOUR_US = 3_600_000_000
SET = set_command([(b"k", 1)])


@pytest.fixture
def world() -> World:
    return World()


def numbered(number: int, client: bytes = CLIENT) -> commands.Numbered:
    return commands.Numbered(command=SET, client=client, number=number)


def answer(world: World, number: int, client: bytes = CLIENT) -> commands.Done:
    """Lets a batch be applied and answered, now."""
    reply = commands.Done(master=MASTER, seq=number)
    op = clients.answered_op([numbered(number, client)], [reply], world.now_us)
    assert isinstance(op, Op)
    world.apply(op)
    return reply


def found(world: World, number: int, client: bytes = CLIENT) -> commands.Reply | None:
    return clients.find_answers(world, [numbered(number, client)])[0]


# -- answers --------------------------------------------------------------------------------------


def test_as_many_answers_are_kept_as_may_be_in_flight(world: World) -> None:
    last = limits.ANSWERS_KEPT + 10
    for number in range(1, last + 1):
        answer(world, number)
    for number in range(1, 11):
        assert code_of(found(world, number)) is Code.STALE_NUMBER  # type: ignore[arg-type]
    for number in range(11, last + 1):
        assert found(world, number) == commands.Done(master=MASTER, seq=number)
    assert found(world, last + 1) is None


numbers_st = st.lists(st.integers(1, 2000), max_size=40)


@settings(max_examples=60, deadline=None)
@given(numbers_st, st.integers(0, 20))
def test_whatever_numbers_a_client_chooses_no_batch_is_applied_twice(
    numbers: list[int], packed: int
) -> None:
    world = World()
    applied: list[int] = []
    for number in numbers:
        reply = found(world, number)
        if reply is None:
            assert number not in applied
            applied.append(number)
            answer(world, number)
        elif not isinstance(reply, commands.Refusal):
            assert reply == commands.Done(master=MASTER, seq=number)
            assert number in applied
        if packed and len(applied) % packed == 0:
            world.pack(len(world.ops()))
    for number in applied:
        assert found(world, number) is not None
    assert len(world.tree(Tree.CLIENTS)) <= limits.ANSWERS_KEPT + 1
    assert world.replayed().trees() == world.trees()


def test_the_answers_of_a_group_are_kept_by_one_op(world: World) -> None:
    replies = [commands.Done(master=MASTER, seq=number) for number in range(1, 65)]
    op = clients.answered_op([numbered(one.seq) for one in replies], replies, world.now_us)
    assert isinstance(op, Op)
    world.apply(op)
    assert clients.find_answers(world, [numbered(one.seq) for one in replies]) == replies


def test_an_answer_that_is_too_large_is_refused(world: World) -> None:
    noise = random.Random(1).randbytes(limits.ANSWER_KEPT_BYTES_MAX)  # cannot be compressed
    world.set({b"a": noise})
    entries = world.run(commands.Get(table="t", keys=Strings.of([b"a"])))
    refused = clients.answered_op([numbered(1)], [entries], NOW_US)
    assert isinstance(refused, commands.Refusal)
    assert refused.code is Code.TOO_LARGE
    world.set({b"a": bytes(limits.ANSWER_KEPT_BYTES_MAX // 2)}, at=1)
    entries = world.run(commands.Get(table="t", keys=Strings.of([b"a"])))
    assert isinstance(clients.answered_op([numbered(1)], [entries], NOW_US), Op)


# -- what may be in a batch -----------------------------------------------------------------------

SAMPLES = {type(one): one for one in [commands.Nop(), *COMMANDS]}
WRITES = [
    *(commands.Set, commands.Touch, commands.Delete, commands.Modify, commands.Rename),
    *(commands.Push, commands.Finish, commands.Extend, commands.Fail, commands.Cancel),
    *(commands.Reschedule, commands.Bury, commands.Revive, commands.Discard, commands.Append),
    *(commands.Erase, commands.Subscribe, commands.Acknowledge, commands.Seek, commands.Rest),
    *(commands.Unsubscribe, commands.Advance, commands.CreateTable, commands.DropTable),
]
OTHERS = [
    *(commands.Nop, commands.Get, commands.Range, commands.Peek, commands.Find),
    *(commands.CountJobs, commands.ListTables, commands.Lock, commands.Unlock),
    *(commands.ListSubscribers, commands.CloseSnapshot),
]
KNOWN = {row.record for row in commands.FUNCTIONS.values()} - {commands.Use}
ALONE = sorted(KNOWN - {*WRITES, *OTHERS}, key=lambda kind: kind.__name__)


def problem(*wanted: commands.Command, client: bytes = b"", number: int = 0) -> Code | None:
    batch = commands.Batch(commands=wanted)
    if number:
        refused = clients.number_problem(
            commands.Numbered(command=batch, client=client, number=number)
        )
    else:
        refused = clients.batch_problem(batch, is_numbered=False)
    return refused.code if refused is not None else None


@pytest.mark.parametrize("kind", [*WRITES, *OTHERS])
def test_what_tables_decide_may_be_in_a_batch(kind: type[commands.Command]) -> None:
    assert problem(SAMPLES[kind]) is None
    assert problem(SET, SAMPLES[kind], SET) is None


@pytest.mark.parametrize("kind", ALONE)
def test_what_tables_do_not_decide_may_not_be_in_a_batch(kind: type[commands.Command]) -> None:
    assert problem(SAMPLES[kind]) is Code.BAD_BATCH
    assert problem(SET, SAMPLES[kind]) is Code.BAD_BATCH
    assert kind.__name__ in str(
        clients.batch_problem(commands.Batch(commands=[SAMPLES[kind]]), is_numbered=False)
    )


@pytest.mark.parametrize("kind", WRITES)
def test_writes_may_be_numbered(kind: type[commands.Command]) -> None:
    assert problem(SAMPLES[kind], client=CLIENT, number=1) is None


@pytest.mark.parametrize("kind", OTHERS)
def test_nothing_else_may_be_numbered(kind: type[commands.Command]) -> None:
    assert problem(SET, SAMPLES[kind], client=CLIENT, number=1) is Code.BAD_BATCH


def test_a_number_needs_a_client() -> None:
    assert problem(SET, number=1) is Code.BAD_BATCH
    assert problem(SET, client=b"short", number=1) is Code.BAD_BATCH
    assert problem(SET, client=CLIENT, number=-1) is Code.BAD_BATCH
    assert problem(SET, client=CLIENT, number=2**64) is Code.BAD_BATCH
    assert problem(SET, client=CLIENT, number=2**64 - 1) is None
    assert problem(SET, client=CLIENT) is None  # it has said who it is, and numbers nothing


def test_a_batch_has_commands_and_not_too_many() -> None:
    assert problem() is Code.BAD_BATCH
    assert problem(*[commands.Nop()] * limits.BATCH_COMMANDS_MAX) is None
    assert problem(*[commands.Nop()] * (limits.BATCH_COMMANDS_MAX + 1)) is Code.BAD_BATCH


def test_a_batch_has_not_too_many_bytes() -> None:
    large = set_command([(b"k", bytes(limits.VALUE_BYTES_MAX))])
    count = limits.BATCH_BYTES_MAX // limits.VALUE_BYTES_MAX
    assert problem(*[large] * count) is Code.TOO_LARGE  # the keys are what is too much
    assert problem(*[large] * (count - 1)) is None
    keys = Strings.of([b"k" * limits.KV_KEY_BYTES_MAX] * 1000)
    many = limits.BATCH_BYTES_MAX // len(keys.data) + 1
    for command in (
        commands.Get(table="t", keys=keys),
        commands.Delete(table="t", keys=keys, timestamp_us=1),
    ):
        assert problem(*[command] * many) is Code.TOO_LARGE
    also = replace(SET, also=Strings.of([b"k" * 1_000_000]))
    assert problem(*[also] * 9) is Code.TOO_LARGE


# -- forgetting -----------------------------------------------------------------------------------


def test_a_client_that_was_not_heard_of_for_a_day_is_forgotten(world: World) -> None:
    for number in range(1, 300):
        answer(world, number)
    world.now_us += limits.CLIENT_KEPT_US + HOUR_US
    answer(world, 1, OTHER)
    world.run(ForgetClients(limit=100))
    assert world.ops()[-1].opcode is Opcode.FORGET_CLIENT
    assert found(world, 299) is None
    assert found(world, 1, OTHER) is not None
    assert {key[:16] for key in world.tree(Tree.CLIENTS)} == {OTHER}
    assert world.replayed().trees() == world.trees()
    before = world.journal
    world.run(ForgetClients(limit=100))
    assert world.journal == before


def test_a_client_is_kept_for_a_day_after_its_last_batch(world: World) -> None:
    answer(world, 1)
    world.now_us += limits.CLIENT_KEPT_US - 1
    world.run(ForgetClients(limit=100))
    reply = answer(world, 2)
    world.now_us += limits.CLIENT_KEPT_US - 1
    world.run(ForgetClients(limit=100))
    assert found(world, 2) == reply
    assert found(world, 1) is not None
    world.now_us += HOUR_US + 1
    world.run(ForgetClients(limit=100))
    assert found(world, 2) is None
    assert world.tree(Tree.CLIENTS) == world.tree(Tree.META) == {}


def test_packing_does_not_make_a_client_older(world: World) -> None:
    """Its first answers are said again after its last one, and must not take its date back."""
    answer(world, 1)
    world.now_us += limits.CLIENT_KEPT_US - HOUR_US
    answer(world, 2)
    world.pack(1)
    world.now_us += 3 * HOUR_US
    world.run(ForgetClients(limit=100))
    assert found(world, 1) is not None
    assert found(world, 2) is not None
    assert world.replayed().trees() == world.trees()


def test_the_answers_of_a_large_batch_fit(world: World) -> None:
    done = [Done(master=MASTER, seq=seq) for seq in range(1, limits.BATCH_COMMANDS_MAX + 1)]
    reply = Replies(replies=done)
    op = clients.answered_op([numbered(1)], [reply], world.now_us)
    assert isinstance(op, Op)
    world.apply(op)
    assert found(world, 1) == reply


def test_a_step_of_forgetting_has_a_bound(world: World) -> None:
    for number in range(5):
        answer(world, 1, b"client %8d." % number)
    world.now_us += 2 * limits.CLIENT_KEPT_US
    for left in (3, 1, 0):
        world.run(ForgetClients(limit=2))
        assert len(world.tree(Tree.CLIENTS)) == 2 * left
    assert world.tree(Tree.META) == {}
