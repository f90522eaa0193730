"""The engine against a plain model, while any segment may be packed at any moment.

After every crash and every packing the index must also be what a replay of the journal comes to:
what packing leaves of the journal is all that a next start has.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fjord import commands
from fjord.columns import Strings
from fjord.engine import Engine, EngineSettings, doctor, open_engine
from fjord.engine.memory import TREE_COUNT
from fjord.errors import Code
from fjord.index.memory import MemoryIndexes
from fjord.journal.reader import Journal
from fjord.kinds import Kind
from fjord.streams import Mode
from fjord.streams import Settings as StreamSettings
from fjord.testing import SimClock, SimDisk
from tests.unit.engine.shore import append_command, told
from tests.unit.engine.world import check_tokens, set_command

TABLE = "things"
MANY, LATEST = "many", "latest"  # tables with a crowd of keys: values, and a stream
KEYS = [b"a", b"b", b"c", b"d"]
LINKS = [b"x", b"y", b"z"]
CROWD = [b"%03d" % number for number in range(300)]
INTEGER = 3
key_of = st.sampled_from(KEYS)
table_of = st.sampled_from([MANY, LATEST])
crowd_of = st.builds(
    lambda first, count: CROWD[first : first + count],
    st.integers(0, len(CROWD) - 1),
    st.sampled_from([1, 20, len(CROWD)]),
)
WORK_SECONDS = 100


def integer(number: int) -> bytes:
    return number.to_bytes(8, "little", signed=True)


class PackingMachine(RuleBasedStateMachine):
    """Integers under keys, further keys, marks and expiries; and tables with a crowd of keys."""

    @initialize(seed=st.integers(0, 2**32))
    def start(self, seed: int) -> None:
        self.disk = SimDisk(seed)
        self.clock = SimClock()
        self.indexes = MemoryIndexes(TREE_COUNT)
        self.numbers: dict[bytes, int] = {}
        self.links: dict[bytes, bytes] = {}  # further key -> key
        self.expiries: dict[bytes, int] = {}
        self.worked: dict[bytes, int] = {}  # key -> until, in lease time
        self.answers: dict[int, bytes] = {}  # of numbered batches
        self.settings = EngineSettings(
            disk=self.disk,
            clock=self.clock,
            indexes=self.indexes,
            segment_bytes=64 * 1024,
            rebuild_rows=10,
        )
        self.engine: Engine = open_engine("/data", self.settings)
        self.crowds: dict[str, dict[bytes, bytes]] = {MANY: {}, LATEST: {}}
        self.seqs: dict[bytes, int] = {}  # of the stream's messages
        latest = StreamSettings(mode=Mode.LATEST, history=False)
        create = commands.CreateTable(
            name=LATEST, kind=Kind.STREAM.number, settings=latest.encode()
        )
        assert isinstance(self.run(create), commands.Done)

    # -- writes -----------------------------------------------------------------------------------

    @rule(key=key_of, number=st.integers(-99, 99), ttl=st.sampled_from([0, 0, 0, 50]))
    def set(self, key: bytes, number: int, ttl: int) -> None:
        assert isinstance(
            self.run(self.set_command(key, number, ttl_us=ttl * 1_000_000)), commands.Done
        )
        self.put(key, number)
        if ttl:
            self.expiries[key] = self.clock.wall_us() + ttl * 1_000_000

    @rule(key=key_of, links=st.lists(st.sampled_from(LINKS), unique=True))
    def link(self, key: bytes, links: list[bytes]) -> None:
        self.drop_expired()
        reply = self.run(self.set_command(key, 7, also=Strings.of(links)))
        if any(self.links.get(link, key) != key for link in links):
            assert isinstance(reply, commands.Refusal)
            assert reply.code is Code.EXISTS
            return
        assert isinstance(reply, commands.Done)
        self.put(key, 7)
        self.unlink(key)
        self.links |= dict.fromkeys(links, key)

    @rule(name=st.sampled_from(KEYS + LINKS), purge=st.booleans())
    def delete(self, name: bytes, purge: bool) -> None:
        self.drop_expired()
        command = commands.Delete(
            table=TABLE, keys=Strings.of([name]), timestamp_us=self.stamp(), purge=purge
        )
        assert isinstance(self.run(command), commands.Done)
        self.remove(self.links.get(name, name))

    @rule(name=st.sampled_from(KEYS + LINKS), number=st.integers(-99, 99))
    def add(self, name: bytes, number: int) -> None:
        self.drop_expired()
        key = self.links.get(name, name)
        reply = self.run(self.add_command(name, number))
        if key not in self.numbers:
            assert isinstance(reply, commands.Refusal)
            return
        assert isinstance(reply, commands.Entries)
        self.numbers[key] += number
        assert reply.values[0] == integer(self.numbers[key])
        self.worked.pop(key, None)

    @rule(key=key_of, to=key_of)
    def rename(self, key: bytes, to: bytes) -> None:
        self.drop_expired()
        reply = self.run(commands.Rename(table=TABLE, key=key, to=to, timestamp_us=self.stamp()))
        if key not in self.numbers or (to in self.numbers and to != key):
            assert isinstance(reply, commands.Refusal)
        elif key != to:
            assert isinstance(reply, commands.Done)
            number, expiry = self.numbers[key], self.expiries.get(key)
            further = [link for link, target in self.links.items() if target == key]
            self.remove(key)
            self.put(to, number)
            self.links |= dict.fromkeys(further, to)
            if expiry:
                self.expiries[to] = expiry

    @rule(key=key_of)
    def take(self, key: bytes) -> None:
        self.drop_expired()
        until_us = self.clock.wall_us() + WORK_SECONDS * 1_000_000
        reply = self.run(
            commands.Touch(table=TABLE, keys=Strings.of([key]), worked_until_us=until_us)
        )
        assert isinstance(reply, commands.Entries)
        # Lease time stands still while no writer runs.
        lease_us = self.engine._leases.lease_us()
        free = key in self.numbers and self.worked.get(key, 0) <= lease_us
        assert (reply.types[0] != commands.Entries.MISSING) == free
        if free:
            self.worked[key] = lease_us + WORK_SECONDS * 1_000_000

    @rule(key=key_of, number=st.integers(1, 5))
    def send_numbered(self, key: bytes, number: int) -> None:
        """A batch that adds one; sent again under its number it only tells its answer."""
        self.drop_expired()
        batch = commands.Numbered(
            command=commands.Batch(commands=[self.add_command(key, 1)]),
            client=b"c" * 16,
            number=number,
        )
        reply = self.run(batch)
        if number in self.answers:
            assert isinstance(reply, commands.Replies)
            assert _value(reply) == self.answers[number]
        elif key not in self.numbers:
            assert isinstance(reply, commands.Refusal)
        else:
            assert isinstance(reply, commands.Replies)
            self.numbers[key] += 1
            self.worked.pop(key, None)
            self.answers[number] = _value(reply)

    @rule(table=table_of, keys=crowd_of)
    def fill(self, table: str, keys: list[bytes]) -> None:
        items = dict.fromkeys(keys, b"%d" % self.stamp())
        if table == MANY:
            reply = self.run(set_command(items, timestamp_us=self.stamp(), table=MANY))
        else:
            reply = self.run(append_command(LATEST, list(items.items())))
        assert isinstance(reply, commands.Done)
        self.crowds[table] |= items
        if table == LATEST:
            first_seq = reply.seq - len(keys) + 1
            self.seqs |= {key: first_seq + at for at, key in enumerate(keys)}

    @rule(table=table_of, keys=crowd_of)
    def thin_out(self, table: str, keys: list[bytes]) -> None:
        """Takes some keys away, not all of them one after the other."""
        gone = Strings.of(keys[::3])
        if table == MANY:
            self.run(commands.Delete(table=MANY, keys=gone, timestamp_us=self.stamp()))
        else:
            self.run(commands.Erase(table=LATEST, keys=gone))
        for key in gone.rows():
            self.crowds[table].pop(key, None)

    # -- what happens to a node -------------------------------------------------------------------

    @rule(seconds=st.sampled_from([1, 30, 60, 120]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule()
    def upkeep(self) -> None:
        while self.engine.upkeep():
            pass

    @rule()
    def begin_segment(self) -> None:
        self.engine.begin_segment()

    @rule()
    def pack_oldest(self) -> None:
        segments = len(self.engine.journal.segments)
        while segments > 1 and len(self.engine.journal.segments) == segments:
            assert self.engine._packer.step()
        self.check_index()

    @rule(power=st.booleans())
    def crash(self, power: bool) -> None:
        if power:
            self.disk.power_cut()
        else:
            self.disk.process_crash()
        self.engine = open_engine("/data", self.settings)
        self.check_index()

    @rule(lose_index=st.booleans())
    def stop_and_start(self, lose_index: bool) -> None:
        self.engine.close()
        if lose_index:
            self.indexes.drop()
        self.engine = open_engine("/data", self.settings)
        self.check_index()

    def check_index(self) -> None:
        found = doctor.diagnose(
            Journal(self.disk, "/data/journal"), self.indexes.open(), self.settings, shown=3
        )
        assert not found.difference_count, found.differences
        self.check_crowds()

    def check_crowds(self) -> None:
        """All keys are there, each with what it got last; messages still have their seqs."""
        (reply,) = self.engine.run([commands.Get(table=MANY, keys=Strings.of(CROWD))])
        assert isinstance(reply, commands.Entries)
        rows = zip(CROWD, reply.types, reply.values.rows(), strict=True)
        found = {key: data for key, type_, data in rows if type_ != commands.Entries.MISSING}
        assert found == self.crowds[MANY]
        (reply,) = self.engine.run([commands.Read(table=LATEST, after=0)])
        assert isinstance(reply, commands.Messages)
        assert reply.ended
        messages = [one for one in told(reply) if not one.is_tombstone]
        expected = sorted((self.seqs[key], key, data) for key, data in self.crowds[LATEST].items())
        assert [(one.seq, one.key, one.value) for one in messages] == expected

    # -- what must hold ---------------------------------------------------------------------------

    @invariant()
    def answers_are_those_of_the_model(self) -> None:
        self.drop_expired()
        names = KEYS + LINKS
        (reply,) = self.engine.run([commands.Get(table=TABLE, keys=Strings.of(names))])
        assert isinstance(reply, commands.Entries)
        rows = zip(names, reply.types, reply.values.rows(), strict=True)
        found = {name: data for name, type_, data in rows if type_ != commands.Entries.MISSING}
        expected = {key: integer(number) for key, number in self.numbers.items()}
        expected |= {link: integer(self.numbers[key]) for link, key in self.links.items()}
        assert found == expected

    # -- inside -----------------------------------------------------------------------------------

    def run(self, command: commands.Command) -> commands.Reply:
        (reply,) = self.engine.run([command])
        check_tokens(self.engine, [reply])
        self.engine.sync()
        return reply

    def stamp(self) -> int:
        self.clock.advance(0.001)
        return self.clock.wall_us()

    def set_command(
        self, key: bytes, number: int, *, ttl_us: int = 0, also: Strings | None = None
    ) -> commands.Set:
        return commands.Set(
            table=TABLE,
            keys=Strings.of([key]),
            types=bytes([INTEGER]),
            values=Strings.of([integer(number)]),
            timestamps_us=[self.stamp()],
            ttl_us=ttl_us,
            also=also,
        )

    def add_command(self, key: bytes, number: int) -> commands.Modify:
        return commands.Modify(
            table=TABLE,
            key=key,
            change=commands.Change.ADD,
            operand=integer(number),
            timestamp_us=self.stamp(),
        )

    def put(self, key: bytes, number: int) -> None:
        if key not in self.numbers:
            self.unlink(key)
        self.numbers[key] = number
        self.expiries.pop(key, None)
        self.worked.pop(key, None)

    def remove(self, key: bytes) -> None:
        self.numbers.pop(key, None)
        self.expiries.pop(key, None)
        self.worked.pop(key, None)
        self.unlink(key)

    def unlink(self, key: bytes) -> None:
        self.links = {link: to for link, to in self.links.items() if to != key}

    def drop_expired(self) -> None:
        now_us = self.clock.wall_us()
        for key in [key for key, moment in self.expiries.items() if moment <= now_us]:
            self.remove(key)


def _value(reply: commands.Replies) -> bytes:
    (entries,) = reply.replies
    assert isinstance(entries, commands.Entries)
    return entries.values[0]


PackingMachine.TestCase.settings = settings(
    max_examples=150, stateful_step_count=50, deadline=None, print_blob=True
)
TestPacking = PackingMachine.TestCase
