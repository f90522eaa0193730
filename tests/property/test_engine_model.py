"""The engine against a plain dict, with crashes, power cuts and clean restarts among the rules."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fjord import values
from fjord.columns import Strings
from fjord.commands import Command, Delete, Done, Entries, Get, Refusal, Reply, Scan, Scanned, Set
from fjord.engine import Engine, EngineSettings, open_engine
from fjord.engine.memory import TREE_COUNT
from fjord.errors import Code
from fjord.index.memory import MemoryIndexes
from fjord.testing import SimClock, SimDisk
from tests.unit.engine.world import check_tokens

TABLE = "things"
KEYS = [b"a", b"b", b"c", b"d", b"key with \x00 and \xff"]
keys_of = st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True)
value_of = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.binary(max_size=300),
)
Stored = tuple[int, bytes]  # type and bytes


class EngineMachine(RuleBasedStateMachine):
    """What a dict holds, the engine holds: with timestamps, memory-only values and restarts."""

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.disk = SimDisk(seed)
        self.clock = SimClock()
        self.indexes = MemoryIndexes(TREE_COUNT)
        self.stored: dict[bytes, Stored] = {}
        self.memory: dict[bytes, Stored] = {}  # persist=0
        self.stamps: dict[bytes, int] = {}  # of values and of tombstones
        self.memory_stamps: dict[bytes, int] = {}
        self.written = 0
        self.engine = self.open()

    def open(self) -> Engine:
        return open_engine(
            "/data",
            EngineSettings(
                disk=self.disk,
                clock=self.clock,
                indexes=self.indexes,
                segment_bytes=64 * 1024,
                rebuild_rows=10,
            ),
        )

    def run(self, command: Command) -> Reply:
        (reply,) = self.engine.run([command])
        check_tokens(self.engine, [reply])
        self.engine.sync()
        return reply

    def newest(self, key: bytes) -> int:
        return max(self.stamps.get(key, 0), self.memory_stamps.get(key, 0))

    @rule(
        keys=keys_of,
        value=value_of,
        late_by=st.sampled_from([0, 0, 0, 5_000]),
        persist=st.sampled_from([True, True, True, False]),
        overwrite=st.sampled_from([True, True, True, False]),
    )
    def set(
        self, keys: list[bytes], value: values.Value, late_by: int, persist: bool, overwrite: bool
    ) -> None:
        self.clock.advance(0.001)
        stamp = self.clock.wall_us() - late_by
        type_, data = values.encode(value)
        command = Set(
            table=TABLE,
            keys=Strings.of(keys),
            types=bytes([type_]) * len(keys),
            values=Strings.of([data] * len(keys)),
            timestamps_us=[stamp] * len(keys),
            overwrite=overwrite,
            persist=persist,
        )
        reply = self.run(command)
        if not overwrite and any(key in self.stored or key in self.memory for key in keys):
            assert isinstance(reply, Refusal)
            assert reply.code is Code.EXISTS
            return
        assert isinstance(reply, Done)
        for key in keys:
            if stamp >= self.newest(key):
                self.put(key, (type_, data), stamp, persist=persist)

    def put(self, key: bytes, value: Stored, stamp: int, *, persist: bool) -> None:
        if persist:
            self.memory.pop(key, None)
            self.memory_stamps.pop(key, None)
            self.stored[key], self.stamps[key] = value, stamp
            self.written += 1
            return
        if self.stored.pop(key, None) is not None:
            self.stamps[key] = stamp
            self.written += 1
        self.memory[key], self.memory_stamps[key] = value, stamp

    @rule(keys=keys_of, late_by=st.sampled_from([0, 0, 5_000]))
    def delete(self, keys: list[bytes], late_by: int) -> None:
        self.clock.advance(0.001)
        stamp = self.clock.wall_us() - late_by
        command = Delete(table=TABLE, keys=Strings.of(keys), timestamp_us=stamp)
        reply = self.run(command)
        assert isinstance(reply, Done)
        for key in keys:
            if stamp >= self.newest(key):
                self.stored.pop(key, None)
                self.memory.pop(key, None)
                self.memory_stamps.pop(key, None)
                self.stamps[key] = stamp
                self.written += 1

    @rule(power=st.booleans())
    def crash(self, power: bool) -> None:
        if power:
            self.disk.power_cut()
        else:
            self.disk.process_crash()
        self.restart()

    @rule()
    def stop_and_start(self) -> None:
        self.engine.close()
        self.restart()

    @rule()
    def lose_the_index(self) -> None:
        self.engine.close()
        self.indexes.drop()
        self.restart()

    def restart(self) -> None:
        self.memory.clear()
        self.memory_stamps.clear()
        self.engine = self.open()

    @invariant()
    def answers_are_those_of_a_dict(self) -> None:
        (reply,) = self.engine.run([Get(table=TABLE, keys=Strings.of(KEYS))])
        assert isinstance(reply, Entries)
        expected = {**self.stored, **self.memory}
        rows = zip(KEYS, reply.types, reply.values.rows(), strict=True)
        found = {key: (type_, data) for key, type_, data in rows if type_ != Entries.MISSING}
        assert found == expected

    @invariant()
    def history_has_every_row_once(self) -> None:
        if not self.written:
            return
        reply = self.engine.scan(Scan(table=TABLE, start_seq=1, end_seq=0))
        assert isinstance(reply, Scanned)
        rows = sum(int.from_bytes(op[8:12], "little") for op in reply.ops)
        assert rows == self.written + 1  # and the creation of the table


EngineMachine.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, print_blob=True
)
TestEngine = EngineMachine.TestCase
