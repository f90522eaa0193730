"""Rules of the streams machine that are about subscribers."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from fjord import commands
from fjord.commands import Done, Numbers, Position, Refusal, Subscribers
from fjord.errors import Code
from fjord.streams import Start
from tests.invariants.histories import Outcome
from tests.invariants.stream_histories import How, Unsubscribed
from tests.property.stream_machine import Book, Machine
from tests.property.streams_model import STREAMS, Mark, Model
from tests.unit.engine.shore import Message

names_of = st.sampled_from(["one", "two", "three"])
streams_of = st.sampled_from(list(STREAMS))
parts_of = st.integers(0, 4)
picks_of = st.integers(0, 9)
starts_of = st.sampled_from(list(Start))


class SubscriberRules:
    """What subscribers do; to be mixed into a machine with a model."""

    machine: Machine
    model: Model
    book: Book
    lists = 0

    # -- being there ------------------------------------------------------------------------------

    @rule(table=streams_of, name=names_of, start=starts_of, part=parts_of)
    def subscribe(self, table: str, name: str, start: Start, part: int) -> None:
        at = self.point_of(table, start, part)
        command = commands.Subscribe(table=table, name=name, start=start, at=at)
        reply = self.machine.ask(command)
        assert isinstance(reply, Position), reply
        mark = self.model.marks.get((table, name))
        assert reply.created == (mark is None)
        if mark is None:
            self.check_start(table, start, at, reply)
            self.model.marks[table, name] = Mark(reply.seq, reply.epoch)
        else:
            assert (reply.seq, reply.epoch, reply.asleep) == (mark.seq, mark.epoch, mark.asleep)
        how = How.SUBSCRIBE if mark is None else How.LOOK
        self.book.note_position(table, name, how, seq=reply.seq, epoch=reply.epoch)

    @precondition(lambda self: self.model.marks)
    @rule(
        pick=picks_of,
        what=st.sampled_from(["seek", "seek", "leave", "rest", "wake", "lag", "lag"]),
        start=starts_of,
        part=parts_of,
    )
    def change_subscriber(self, pick: int, what: str, start: Start, part: int) -> None:
        table, name, mark = self.picked(pick)
        if what == "seek":
            self.seek(table, name, start, self.point_of(table, start, part))
        elif what == "leave":
            self.leave(table, name)
        elif what == "lag":
            self.check_lag(table, name, mark)
        else:
            mark.asleep = what == "rest"
            reply = self.machine.ask(commands.Rest(table=table, name=name, asleep=mark.asleep))
            assert isinstance(reply, Position), reply
            assert (reply.seq, reply.epoch, reply.asleep) == (mark.seq, mark.epoch, mark.asleep)

    def seek(self, table: str, name: str, start: Start, at: int) -> None:
        mark = self.model.marks[table, name]
        reply = self.machine.ask(commands.Seek(table=table, name=name, start=start, at=at))
        assert isinstance(reply, Position), reply
        assert (reply.epoch, reply.asleep) == (mark.epoch + 1, mark.asleep)
        self.check_start(table, start, at, reply)
        mark.seq, mark.epoch = reply.seq, reply.epoch
        self.book.note_position(table, name, How.SEEK, seq=reply.seq, epoch=reply.epoch)

    def leave(self, table: str, name: str) -> None:
        reply = self.machine.ask(commands.Unsubscribe(table=table, name=name))
        assert isinstance(reply, Done), reply
        del self.model.marks[table, name]
        self.book.note(Unsubscribed, name=f"{table}/{name}")
        asked = self.machine.ask(commands.Acknowledge(table=table, name=name, seq=0, epoch=0))
        assert isinstance(asked, Refusal)
        assert asked.code == Code.NOT_FOUND

    def check_lag(self, table: str, name: str, mark: Mark) -> None:
        reply = self.machine.ask(commands.Lag(table=table, name=name))
        assert isinstance(reply, Numbers), reply
        found = dict(zip(reply.names.rows(), reply.values, strict=True))
        ahead = self.model.ahead(table, mark.seq)
        assert len(self.needed(table, ahead)) <= found[b"messages"] <= len(ahead)
        assert found[b"seqs"] == self.machine.engine.applied_seq - mark.seq

    def point_of(self, table: str, start: Start, part: int) -> int:
        """Returns a seq or a moment of a message, or of shortly before it; 4: of behind all."""
        found = self.model.tables[table]
        if start is Start.SEQ:
            tail = self.machine.engine.applied_seq
            return found[len(found) * part // 4].seq if found and part < 4 else tail + 1
        if start is Start.TIME:
            now_us = self.machine.now_us
            return found[len(found) * part // 4].wall_us if found and part < 4 else now_us + 1
        return 0

    def check_start(self, table: str, start: Start, at: int, reply: Position) -> None:
        """What is ahead of a subscriber is what it asked for."""
        assert 0 <= reply.seq <= self.machine.engine.applied_seq
        ahead = self.needed(table, self.model.ahead(table, reply.seq))
        assert ahead == self.needed(table, self.model.from_start(table, start, at))

    def needed(self, table: str, found: list[Message]) -> list[Message]:
        return self.model.needed(table, found, self.machine.now_us)

    def picked(self, pick: int) -> tuple[str, str, Mark]:
        (table, name), mark = list(self.model.marks.items())[pick % len(self.model.marks)]
        return table, name, mark

    # -- going on ---------------------------------------------------------------------------------

    @precondition(lambda self: self.model.marks)
    @rule(
        pick=picks_of,
        part=parts_of,
        epoch=st.sampled_from([0, 0, 0, -1, 1]),
        expects=st.sampled_from([None, None, 0, 1]),
        beyond=st.sampled_from([False, False, False, True]),
    )
    def acknowledge(
        self, pick: int, part: int, epoch: int, expects: int | None, beyond: bool
    ) -> None:
        """Of the right epoch, or not; from the right mark, or not; up to what there is, or not."""
        table, name, mark = self.picked(pick)
        ahead = [mark.seq // 2, mark.seq, *[one.seq for one in self.model.ahead(table, mark.seq)]]
        seq = ahead[(len(ahead) - 1) * part // 4]
        if beyond:
            seq = self.machine.engine.applied_seq + 1
        given: dict[str, Any] = {
            "epoch": max(0, mark.epoch + epoch),
            "expected": -1 if expects is None else mark.seq + expects,
        }
        command = commands.Acknowledge(table=table, name=name, seq=seq, **given)
        reply = self.machine.ask(command)
        is_stale = given["epoch"] != mark.epoch or expects == 1
        told = {"asked": seq, "given": given["epoch"], "expected": given["expected"]}
        if is_stale or beyond:
            assert isinstance(reply, Refusal), reply
            possible = {Code.STALE_EPOCH} if is_stale else {Code.BAD_RANGE}
            assert reply.code in (possible | {Code.BAD_RANGE} if beyond else possible)
            how = How.ACKNOWLEDGE
            self.book.note_position(table, name, how, outcome=Outcome.REFUSED, **told)
            return
        assert isinstance(reply, Position), reply
        mark.seq = max(mark.seq, seq)
        assert (reply.seq, reply.epoch) == (mark.seq, mark.epoch)
        self.book.note_position(
            table, name, How.ACKNOWLEDGE, seq=reply.seq, epoch=reply.epoch, **told
        )

    # -- what must hold ---------------------------------------------------------------------------

    @invariant()
    def marks_are_where_they_were_set(self) -> None:
        """Looks at one stream after the other."""
        self.lists += 1
        table = list(STREAMS)[self.lists % len(STREAMS)]
        reply = self.machine.ask(commands.ListSubscribers(table=table))
        assert isinstance(reply, Subscribers), reply
        columns = (reply.names.rows(), reply.seqs, reply.epochs, reply.asleep)
        found = {
            (table, name.decode()): Mark(seq, epoch, bool(asleep))
            for name, seq, epoch, asleep in zip(*columns, strict=True)
        }
        assert found == {key: mark for key, mark in self.model.marks.items() if key[0] == table}
        assert list(found) == sorted(found)
