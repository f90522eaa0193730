"""Streams against a plain list, with sealing, crashes, power cuts and packing among the rules.

Readers and snapshots stay open while other rules run: that is the concurrency of one writer.  A
reader at S sees exactly the fold of what was written up to S.  Every step is also written down as a
history, and the checkers I7 and I13 judge it when the run is over.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fjord import commands, limits, ops
from fjord.columns import Strings
from fjord.commands import Acted, Command, Done, Messages, Opened, Refusal, Replies, Reply
from fjord.errors import Code
from fjord.testing import SimCrash
from tests.invariants import stream_histories as histories
from tests.invariants.stream_checkers import stream_violations
from tests.property.stream_machine import Machine, page_of
from tests.property.streams_model import (
    AGED,
    HOUR_US,
    KV,
    LOG,
    LOGS,
    MAPS,
    STREAMS,
    Model,
    deadline_us,
    is_over,
)
from tests.property.subscriber_rules import SubscriberRules
from tests.unit.engine.shore import Message, append_command, told

KEYS = [b"a", b"b", b"c", b"hot", b"\0\xff"]
SIZES = [0, 0, 0, 0, 100, 9000]  # some values are large, so that segments come and go

streams_of = st.sampled_from(list(STREAMS))
keys_of = st.lists(st.sampled_from(KEYS), min_size=1, max_size=4)
Wanted = dict[str, Any]  # one of these


def _changes_of(tables: list[str]) -> st.SearchStrategy[list[Wanted]]:
    fields: dict[str, st.SearchStrategy[Any]] = {
        "table": st.sampled_from(tables),
        "erases": st.sampled_from([False, False, True]),
        "keys": keys_of,
        "size": st.sampled_from(SIZES),
    }
    return st.lists(st.fixed_dictionaries(fields), min_size=1, max_size=4)


changes_of = _changes_of([*STREAMS, KV])
maps_of = _changes_of(MAPS)
steps_of = st.lists(
    st.sampled_from(["upkeep", "segment", "pack", "pack", "stop"]), min_size=1, max_size=4
)
counts_of = st.sampled_from([0, 1, 2, 3, 10])


@dataclass(slots=True)
class Reader:
    """Somebody who goes through a stream, and keeps its own place."""

    table: str
    after: int
    until: int = 0
    deadline_us: int = 0  # of its snapshot


class StreamsMachine(SubscriberRules, RuleBasedStateMachine):
    """Two logs, two streams that keep the latest, one key/value table; one model, one history."""

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.machine = Machine(seed)
        self.book = self.machine.book
        self.model = Model()
        self.values = 0
        self.readers: list[Reader] = []
        self.looks = 0

    # -- writing ----------------------------------------------------------------------------------

    @rule(changes=changes_of)
    def write_one_by_one(self, changes: list[Wanted]) -> None:
        self.write(changes, batch=False)

    @rule(changes=changes_of)
    def write_at_once(self, changes: list[Wanted]) -> None:
        self.write(changes, batch=True)

    @rule(table=streams_of, keys=keys_of, size=st.sampled_from(SIZES))
    def append(self, table: str, keys: list[bytes], size: int) -> None:
        self.write([{"table": table, "erases": False, "keys": keys, "size": size}], batch=False)

    def write(self, changes: list[Wanted], *, batch: bool) -> None:
        self.machine.tick()
        wanted = [self.command_of(change) for change in changes]
        replies = self.machine.ask_all(wanted, batch=batch)
        written = []
        for command, reply in zip(wanted, replies, strict=True):
            made = self.applied(self.model, command, reply)
            written += made
            if not batch:
                self.book.note_write(made)
        if batch:
            self.book.note_write(written)
        appended = {table for table, _ in written if table in STREAMS}
        assert set(self.machine.engine.take_news().appended) >= appended

    def command_of(self, change: Wanted) -> Command:
        table, keys = change["table"], Strings.of(change["keys"])
        if change["erases"] and table == KV:
            return commands.Delete(table=KV, keys=keys, timestamp_us=self.now_us)
        if change["erases"] and table in MAPS:
            return commands.Erase(table=table, keys=keys)
        rows = [(key, self.value_of(change["size"])) for key in change["keys"]]
        if table != KV:
            return append_command(table, rows)
        latest = dict(rows)
        return commands.Set(
            table=KV,
            keys=Strings.of(list(latest)),
            types=b"\1" * len(latest),
            values=Strings.of(list(latest.values())),
            timestamps_us=[self.now_us] * len(latest),
        )

    def value_of(self, size: int) -> bytes:
        """Returns a value that there was never before."""
        self.values += 1
        return b"%d" % self.values + b"." * size

    def applied(self, model: Model, command: Command, reply: Reply) -> list[tuple[str, Message]]:
        """Does to a model what a command did; returns what it wrote."""
        assert isinstance(reply, Done | Acted), reply
        assert isinstance(
            command, commands.Append | commands.Set | commands.Erase | commands.Delete
        )
        table, keys = command.table, command.keys.rows()
        now_us, gone = self.now_us, ops.TOMBSTONE
        if isinstance(command, commands.Append | commands.Set):
            rows = [(1, key, value) for key, value in zip(keys, command.values.rows(), strict=True)]
        else:
            there = {one.key for one in model.entries(table, 2**63)}
            found = dict.fromkeys(key for key in keys if key in there)
            if isinstance(reply, Acted):
                expected = [at for at, key in enumerate(keys) if key not in found]
                repeated = [at for at, key in enumerate(keys) if key in keys[:at]]
                assert list(reply.missing) == sorted({*expected, *repeated})
            rows = [(gone, key, b"") for key in found]
        last = reply.seq
        first = last - len(rows) + 1
        written = [
            Message(last if table == KV else first + at, now_us, *row)
            for at, row in enumerate(rows)
        ]
        model.write(table, written)
        return [(table, one) for one in written]

    # -- reading ----------------------------------------------------------------------------------

    @rule(table=streams_of, count=counts_of, part=st.integers(0, 3))
    def begin_to_read(self, table: str, count: int, part: int) -> None:
        seqs = [0, *[one.seq for one in self.model.tables[table]]]
        reader = Reader(table, seqs[len(seqs) * part // 4])
        self.readers = [*self.readers[-5:], reader]
        self.read_on(reader, count)

    @precondition(lambda self: self.readers)
    @rule(pick=st.integers(0, 9), count=counts_of)
    def go_on(self, pick: int, count: int) -> None:
        self.read_on(self.readers[pick % len(self.readers)], count)

    def read_on(self, reader: Reader, count: int) -> None:
        """Reads the next piece; a snapshot that has ended is followed by the next one."""
        lease_us = self.machine.engine.lease_us
        command = commands.Read(
            table=reader.table, after=reader.after, until=reader.until, count=count
        )
        reply = self.machine.read(command)
        self.check_piece(command, reply)
        if reader.until and reply.until != reader.until:
            # Only a snapshot whose time was over is replaced, and only where one is needed.
            assert reader.table in MAPS
            assert is_over(reader.deadline_us, lease_us)
            assert reply.until > reader.until
        if reply.until != reader.until:
            reader.deadline_us = deadline_us(lease_us)
        reader.after, reader.until = reply.after, 0 if reply.ended else reply.until

    def check_piece(self, command: commands.Read, reply: Messages) -> None:
        """Holds an answer against what there was at the end of its snapshot."""
        expected = self.model.messages(command.table, command.after, reply.until, reply.after)
        found = told(reply)
        self.check_messages(command.table, found, expected)
        assert reply.ended == (reply.after >= reply.until)
        assert reply.ended or reply.after > command.after
        assert len(found) <= (command.count or limits.READ_COUNT_MAX)
        if not command.until:
            assert self.model.last_seq <= reply.until <= self.machine.engine.applied_seq
            self.book.note(histories.Opened, snapshot=reply.until)
        self.book.note_read(command, reply)

    def check_messages(self, table: str, found: list[Message], expected: list[Message]) -> None:
        """Nothing is given that is not there; what is not given may be gone, the oldest first."""
        needed = self.model.needed(table, expected, self.now_us)
        assert self.model.needed(table, found, self.now_us) == needed
        assert [one for one in expected if one in found] == found
        if table in LOGS:
            assert found == expected[len(expected) - len(found) :]

    # -- snapshots --------------------------------------------------------------------------------

    @precondition(lambda self: len(self.model.snapshots) < 5)
    @rule(lifetime=st.sampled_from([0, 0, 30]))
    def open_snapshot(self, lifetime: int) -> None:
        lease_us, lifetime_us = self.machine.engine.lease_us, lifetime * 1_000_000
        reply = self.machine.ask(commands.OpenSnapshot(lifetime_us=lifetime_us))
        assert isinstance(reply, Opened), reply
        assert reply.snapshot >= self.model.last_seq
        assert reply.wall_us == self.now_us
        self.model.snapshots[reply.snapshot] = deadline_us(lease_us, lifetime_us)
        self.book.note(histories.Opened, snapshot=reply.snapshot)

    def look_at(self, snapshot: int, maps: list[str], streams: list[str]) -> None:
        """Several tables in one command, all of the same moment."""
        count = [0, 1, 3][self.looks % 3]
        ranges = [commands.Range(table=table) for table in maps]
        gets = [commands.Get(table=table, keys=Strings.of(KEYS)) for table in maps]
        reads = [commands.Read(table=table, after=0, count=count) for table in streams]
        command = commands.AsOf(snapshot=snapshot, commands=[*ranges, *gets, *reads])
        reply = self.machine.ask(command)
        if isinstance(reply, Refusal):
            assert reply.code == Code.SNAPSHOT_GONE
            assert is_over(self.model.snapshots.pop(snapshot), self.machine.engine.lease_us)
            return
        assert isinstance(reply, Replies)
        pages, entries = reply.replies[: len(maps)], reply.replies[len(maps) : 2 * len(maps)]
        for table, page, got in zip(maps, pages, entries, strict=True):
            self.check_map(snapshot, table, page)
            self.check_keys(snapshot, table, got)
        for read, found in zip(reads, reply.replies[2 * len(maps) :], strict=True):
            assert isinstance(found, Messages), found
            assert found.until == snapshot
            self.read_as_of(snapshot, read, found)

    def read_as_of(self, snapshot: int, read: commands.Read, reply: Messages) -> None:
        """Reads a stream to the end of a snapshot, piece by piece."""
        while True:
            self.check_piece_as_of(snapshot, read, reply)
            if reply.ended:
                return
            read = commands.Read(table=read.table, after=reply.after, count=read.count)
            replies = self.machine.ask(commands.AsOf(snapshot=snapshot, commands=[read]))
            assert isinstance(replies, Replies)
            (found,) = replies.replies
            assert isinstance(found, Messages), found
            reply = found

    def check_piece_as_of(self, snapshot: int, read: commands.Read, reply: Messages) -> None:
        expected = self.model.messages(read.table, read.after, snapshot, reply.after)
        self.check_messages(read.table, told(reply), expected)
        assert reply.ended == (reply.after >= snapshot)
        assert reply.ended or reply.after > read.after
        self.book.note_read(read, reply)

    def check_map(self, snapshot: int, table: str, reply: Reply) -> None:
        found = page_of(reply)
        expected = self.model.entries(table, snapshot)
        assert found == [one._replace(seq=0) for one in expected]
        entries = tuple((one.key, one.value) for one in found)
        self.book.note(histories.Saw, snapshot=snapshot, table=table, entries=entries)

    def check_keys(self, snapshot: int, table: str, reply: Reply) -> None:
        assert isinstance(reply, commands.Entries), reply
        there = {one.key: one.value for one in self.model.entries(table, snapshot)}
        found = [
            None if type_ == reply.MISSING else value
            for type_, value in zip(reply.types, reply.values, strict=True)
        ]
        assert found == [there.get(key) for key in KEYS]

    @precondition(lambda self: self.model.snapshots)
    @rule(pick=st.integers(0, 9))
    def close_snapshot(self, pick: int) -> None:
        snapshot = list(self.model.snapshots)[pick % len(self.model.snapshots)]
        assert isinstance(self.machine.ask(commands.CloseSnapshot(snapshot=snapshot)), Done)
        del self.model.snapshots[snapshot]
        reply = self.machine.ask(commands.AsOf(snapshot=snapshot, commands=[]))
        assert isinstance(reply, Refusal)
        assert reply.code == Code.SNAPSHOT_GONE

    # -- cold blocks ------------------------------------------------------------------------------

    @rule(
        table=st.sampled_from(["", "", LOG, AGED]),
        ends=st.sampled_from(["", "", "", "planned", "written", "finished"]),
        power=st.booleans(),
    )
    def seal(self, table: str, ends: str, power: bool) -> None:
        """A round of sealing, to its end or to a crash after one of its steps."""
        if not ends:
            self.machine.shore.seal(self.machine.engine, table)
            self.machine.check_index()
            return
        engine = self.machine.engine
        plan = engine.sealing.plan_seal(table, now=True)
        if plan is not None and ends != "planned":
            engine.sync()
            blocks = self.machine.shore.write(engine, plan)
            if ends == "finished":
                engine.sealing.finish_seal(plan, blocks)
        self.machine.fall(power=power)
        self.machine.start("crash")

    @rule(ends=st.sampled_from(["", "", "", "planned", "removed", "finished"]))
    def retire(self, ends: str) -> None:
        """What retention lets go is older than it says, and comes first."""
        engine, sealing = self.machine.engine, self.machine.engine.sealing
        before = sealing.blocks(AGED)
        blocks = sealing.plan_retirement()
        for block in blocks:
            assert self.now_us - block.max_us >= HOUR_US
        last = max((block.last for block in blocks), default=0)
        assert sealing.blocks(AGED) == [block for block in before if block.last > last]
        if last:
            self.model.gone[AGED] = max(last, self.model.gone.get(AGED, 0))
            self.book.note(histories.Retired, table=AGED, last=last)
        engine.sync()
        if ends != "planned":
            self.machine.shore.remove(blocks)
            if ends != "removed":
                sealing.finish_retirement(blocks)
            if not ends:
                engine.sync()
                return
        self.machine.fall(power=False)
        self.machine.start("crash")

    # -- what happens to a node -------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 31, 31, 901, 4000, 8 * 24 * 3600]))
    def wait(self, seconds: int) -> None:
        self.machine.clock.advance(seconds)

    @rule(steps=steps_of)
    def keep_house(self, steps: list[str]) -> None:
        for step in steps:
            if step in ("segment", "pack"):
                self.machine.rotate()
            if step == "pack":
                self.machine.shore.seal(self.machine.engine)
                self.machine.upkeep()
                self.machine.pack_oldest()
            elif step == "upkeep":
                self.machine.upkeep()
            elif step == "stop":
                self.disturb("stop")
        self.machine.check_index()

    @rule(before=maps_of, after=maps_of, steps=steps_of, table=st.sampled_from([*STREAMS]))
    def go_on_for_long(
        self, before: list[Wanted], after: list[Wanted], steps: list[str], table: str
    ) -> None:
        """A reader and a snapshot are there while all sorts of things happen."""
        self.write(before, batch=True)
        reader = Reader(table, 0)
        self.read_on(reader, 1)
        self.open_snapshot(0)
        for changes in (after, before):
            self.write(changes, batch=True)
            self.keep_house(steps)
        for snapshot in list(self.model.snapshots):
            self.look_at(snapshot, MAPS, [*STREAMS])
        while reader.until:
            self.read_on(reader, 2)
        self.close_snapshot(self.looks)

    @rule(what=st.sampled_from(["crash", "power cut", "stop", "lost index"]))
    def disturb(self, what: str) -> None:
        if what in ("crash", "power cut"):
            self.machine.fall(power=what == "power cut")
        else:
            self.machine.engine.close()
        if what in ("lost index", "power cut"):
            self.machine.indexes.drop()
        self.machine.start(what)

    @rule(calls=st.integers(1, 4), power=st.booleans(), changes=changes_of)
    def crash_in_the_middle(self, calls: int, power: bool, changes: list[Wanted]) -> None:
        """A transaction that was never answered was run, or was not; nothing in between."""
        self.machine.tick()
        changes = [{**changes[0], "table": LOG, "erases": False, "keys": [b"", b"mid"]}, *changes]
        wanted = [self.command_of(change) for change in changes]
        self.machine.disk.crash_after(calls)
        with contextlib.suppress(SimCrash):
            self.machine.engine.run([commands.Batch(commands=wanted)])
            self.machine.engine.sync()
        self.machine.fall(power=power)
        self.machine.start("crash")
        self.resolve(wanted)

    def resolve(self, wanted: list[Any]) -> None:
        """Finds out whether a transaction is there: all of it, or nothing."""
        after = {table: self.model.ahead(table, 0)[-1:] for table in STREAMS}
        found = {
            table: told(
                self.machine.read(commands.Read(table=table, after=end[0].seq if end else 0))
            )
            for table, end in after.items()
        }
        if not found[LOG]:
            return  # what else there is of it is found by the next look at everything
        written = []
        for table in [*STREAMS, KV]:
            expected = self.outcome_of([one for one in wanted if one.table == table])
            if table == KV:
                seq = found[LOG][0].seq
                made = [Message(seq, self.now_us, *row) for row in expected]
            else:
                made = found[table]
                assert [one[2:] for one in made] == expected
            self.model.write(table, made)
            written += [(table, one) for one in made]
        self.book.note_write(written)

    def outcome_of(self, wanted: list[Any]) -> list[tuple[int, bytes, bytes]]:
        """Returns what commands on one table bring: types, keys and values, in order."""
        made: list[tuple[int, bytes, bytes]] = []
        for command in wanted:
            there = {one.key for one in self.model.entries(command.table, 2**63)}
            for type_, key, _ in made:
                (there.discard if type_ == ops.TOMBSTONE else there.add)(key)
            keys = command.keys.rows()
            if isinstance(command, commands.Append | commands.Set):
                made += [(1, *row) for row in zip(keys, command.values.rows(), strict=True)]
            else:
                gone = dict.fromkeys(key for key in keys if key in there)
                made += [(ops.TOMBSTONE, key, b"") for key in gone]
            if command.table in MAPS:
                newest = {row[1]: at for at, row in enumerate(made)}
                made = [row for at, row in enumerate(made) if newest[row[1]] == at]
        return made

    # -- what must hold ---------------------------------------------------------------------------

    @invariant()
    def everything_is_there(self) -> None:
        """Looks at one stream after the other, from the beginning, and at one map."""
        self.looks += 1
        table = list(STREAMS)[self.looks % len(STREAMS)]
        reader = Reader(table, 0)
        while True:
            self.read_on(reader, [0, 3, 7][self.looks % 3])
            if not reader.until:
                break
        table = MAPS[self.looks % len(MAPS)]
        found = page_of(self.machine.ask(commands.Range(table=table)))
        expected = self.model.entries(table, 2**63)
        assert found == [one._replace(seq=0) for one in expected]

    @invariant()
    def snapshots_are_as_they_were(self) -> None:
        """Looks at one of those that are open after the other."""
        opened = list(self.model.snapshots)
        if opened:
            self.look_at(opened[self.looks % len(opened)], MAPS, list(STREAMS)[self.looks % 4 :])

    def teardown(self) -> None:
        if hasattr(self, "machine"):
            self.machine.shore.cold.close()
            found = stream_violations(self.book.history)
            assert not found, "\n".join(map(str, found))

    @property
    def now_us(self) -> int:
        return self.machine.now_us


StreamsMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, derandomize=True
)
TestStreams = pytest.mark.req("KY-04", "KY-10", "KY-15", "KY-17", "KY-30")(StreamsMachine.TestCase)
