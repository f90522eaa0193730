"""Messages with dates against a plain map, with crashes, power cuts and packing in between."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from fjord import commands, ops
from fjord.columns import Strings
from fjord.commands import Acted, Done
from tests.property.stream_machine import Machine, page_of
from tests.property.streams_model import BARE
from tests.unit.engine.shore import Message, append_command, told

SECOND = 1_000_000
KEYS = [b"a", b"b", b"c"]

keys_of = st.lists(st.sampled_from(KEYS), min_size=1, max_size=4)
steps_of = st.lists(
    st.one_of(
        st.tuples(st.just("dated"), st.lists(st.tuples(st.sampled_from(KEYS), st.integers(-9, 9)))),
        st.tuples(st.sampled_from(["plain", "erase"]), keys_of),
        st.tuples(st.sampled_from(["pack", "crash", "power cut", "stop"]), st.none()),
    ),
    max_size=15,
)


class Held(NamedTuple):
    """What a key has."""

    message: Message
    date_us: int


class Mirror:
    """A machine, and the map that it ought to hold."""

    def __init__(self) -> None:
        self.machine = Machine(1)
        self.begin_us = self.machine.now_us + 10 * SECOND
        self.machine.clock.advance(10)
        self.held: dict[bytes, Held] = {}
        self.values = 0

    def step(self, verb: str, given: Any) -> None:
        self.machine.tick()
        if verb == "dated":
            self.append([key for key, _ in given], [date for _, date in given])
        elif verb == "plain":
            self.append(given, None)
        elif verb == "erase":
            self.erase(given)
        elif verb == "pack":
            self.machine.rotate()
            self.machine.pack_oldest()
        else:
            self.restart(verb)

    def append(self, keys: list[bytes], dates: list[int] | None) -> None:
        if not keys:
            return
        self.values += 1
        rows = [(key, b"%d-%d" % (self.values, at)) for at, key in enumerate(keys)]
        command = append_command(BARE, rows)
        if dates is not None:
            command.timestamps_us = [self.begin_us + date * SECOND for date in dates]
        reply = self.machine.ask(command)
        assert isinstance(reply, Done), reply
        now_us = self.machine.now_us
        stamps = command.timestamps_us or [now_us] * len(keys)
        won = []
        for (key, value), stamp in zip(rows, stamps, strict=True):
            known = self.held.get(key)
            if dates is None or known is None or stamp >= known.date_us:
                won.append(key)
                self.held[key] = Held(Message(0, now_us, 1, key, value), stamp)
        self.number(won, reply.seq)

    def erase(self, keys: list[bytes]) -> None:
        reply = self.machine.ask(commands.Erase(table=BARE, keys=Strings.of(keys)))
        assert isinstance(reply, Acted), reply
        there = {key for key, (one, _) in self.held.items() if not one.is_tombstone}
        found = list(dict.fromkeys(key for key in keys if key in there))
        now_us = self.machine.now_us
        for key in found:
            self.held[key] = Held(Message(0, now_us, ops.TOMBSTONE, key, b""), now_us)
        self.number(found, reply.seq)

    def number(self, keys: list[bytes], last: int) -> None:
        """Gives messages their seqs, of which the last one is known."""
        for seq, key in enumerate(keys, last - len(keys) + 1):
            held = self.held[key]
            self.held[key] = held._replace(message=held.message._replace(seq=seq))

    def restart(self, how: str) -> None:
        if how == "stop":
            self.machine.engine.close()
        else:
            self.machine.fall(power=how == "power cut")
        self.machine.start(how)

    def check(self) -> None:
        """The stream tells messages by their seqs and moments, the map by their dates."""
        reply = self.machine.read(commands.Read(table=BARE, after=0))
        assert told(reply) == sorted(one for one, _ in self.held.values())
        page = page_of(self.machine.ask(commands.Range(table=BARE)))
        assert page == [
            one._replace(seq=0, wall_us=date_us)
            for _, (one, date_us) in sorted(self.held.items())
            if not one.is_tombstone
        ]


@given(steps_of)
def test_no_late_message_takes_the_place_of_a_newer_one(steps: list[tuple[str, Any]]) -> None:
    mirror = Mirror()
    for verb, given_ in steps:
        mirror.step(verb, given_)
        mirror.check()
    mirror.machine.check_index()
