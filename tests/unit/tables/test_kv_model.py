"""Random lives of a table: the same as those of a plain model, replayed, and packed."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fjord import commands, limits
from fjord.columns import Strings
from fjord.layouts import end_of
from fjord.ops import TOMBSTONE, Op
from fjord.tables import clients
from fjord.tables.catalog import Sweep, TakeOver
from fjord.tables.kv import keep, layout
from fjord.tables.state import Tree
from fjord.values import Type
from tests.unit.tables.model import Model, Value
from tests.unit.tables.world import NOW_US, World, code_of, entry_of, set_command

KEYS = [b"a", b"b", b"c", b"d", b"dd"]
key_st = st.sampled_from(KEYS)
keys_st = st.lists(key_st, min_size=1, max_size=3)
# Some clients have clocks that are far behind.
at_st = st.integers(-3, 6) | st.integers(-3, 6).map(lambda at: at - 2 * limits.TOMBSTONE_US)
soon_st = st.sampled_from([0, 0, 1, 3, 10])


class Lives(RuleBasedStateMachine):
    """Every rule does the same to a world and to the model, and compares what they answer."""

    @initialize()
    def begin(self) -> None:
        self.world = World()
        self.model = Model(NOW_US)
        self.buried: dict[tuple[bytes, int], int] = {}  # key and row of a tombstone -> lease time
        self.world.set({b"another": 1}, table="u")
        self.world.set({b"first": 0})
        self.model.set([(b"first", 0)], NOW_US)

    def _at_us(self, at: int) -> int:
        return self.world.now_us + at

    @rule(
        items=st.lists(st.tuples(key_st, st.integers(0, 99)), min_size=1, max_size=4),
        at=at_st,
        expires=soon_st,
        ttl=soon_st,
        overwrite=st.sampled_from([True, True, False]),
        persist=st.sampled_from([True, True, True, False]),
    )
    def set(
        self,
        items: list[tuple[bytes, int]],
        at: int,
        expires: int,
        ttl: int,
        overwrite: bool,
        persist: bool,
    ) -> None:
        at_us, expires_at_us = self._at_us(at), self.world.now_us + expires if expires else 0
        command = set_command(items, at=at_us - NOW_US, overwrite=overwrite, persist=persist)
        command.expires_at_us, command.ttl_us = expires_at_us, ttl
        expected = self.model.set(
            items,
            at_us,
            expires_at_us=expires_at_us,
            ttl_us=ttl,
            overwrite=overwrite,
            persist=persist,
        )
        assert code_of(self.world.run(command)) is expected

    @rule(
        key=key_st,
        value=st.integers(0, 99),
        at=at_st,
        expires=soon_st,
        also=st.lists(key_st, max_size=3, unique=True),
    )
    def set_with_others(
        self, key: bytes, value: int, at: int, expires: int, also: list[bytes]
    ) -> None:
        at_us, expires_at_us = self._at_us(at), self.world.now_us + expires if expires else 0
        command = set_command([(key, value)], at=at_us - NOW_US, expires_at_us=expires_at_us)
        command.also = Strings.of(also)
        expected = self.model.set([(key, value)], at_us, expires_at_us=expires_at_us, also=also)
        assert code_of(self.world.run(command)) is expected

    @rule(keys=keys_st, at=at_st, purge=st.booleans())
    def delete(self, keys: list[bytes], at: int, purge: bool) -> None:
        self.model.delete(keys, self._at_us(at), purge=purge)
        reply = self.world.delete(*keys, at=self._at_us(at) - NOW_US, purge=purge)
        assert code_of(reply) is None

    @rule(keys=keys_st, expires=st.sampled_from([None, 0, 2, 8]), worked=soon_st)
    def touch(self, keys: list[bytes], expires: int | None, worked: int) -> None:
        now_us = self.world.now_us
        expires_at_us = expires and now_us + expires
        expected = self.model.touch(
            keys, self.world.lease_us, expires_at_us=expires_at_us, worked_us=worked
        )
        command = commands.Touch(
            table="t",
            keys=Strings.of(keys),
            extend=expires is not None,
            expires_at_us=expires_at_us or 0,
            worked_until_us=now_us + worked if worked else 0,
        )
        self._compare(self.world.run(command), expected)

    @rule(key=key_st, operand=st.integers(-5, 5), at=at_st)
    def add(self, key: bytes, operand: int, at: int) -> None:
        command = commands.Modify(
            table="t",
            key=key,
            change=commands.Change.ADD,
            operand=operand.to_bytes(8, "little", signed=True),
            timestamp_us=self._at_us(at),
        )
        expected = self.model.add(key, operand, self._at_us(at))
        reply = self.world.run(command)
        assert code_of(reply) is expected
        if expected is None:
            self._compare(reply, [self.model.find(key)])

    @rule(key=key_st, to=key_st, at=at_st, overwrite=st.booleans())
    def rename(self, key: bytes, to: bytes, at: int, overwrite: bool) -> None:
        at_us = self._at_us(at)
        expected = self.model.rename(key, to, at_us, overwrite=overwrite)
        command = commands.Rename(
            table="t", key=key, to=to, timestamp_us=at_us, overwrite=overwrite
        )
        assert code_of(self.world.run(command)) is expected

    @rule(passed=st.integers(1, 6))
    def wait_a_little(self, passed: int) -> None:
        self.wait(passed)

    def wait(self, passed: int) -> None:
        self.world.now_us += passed
        self.world.lease_us += passed
        self.model.now_us += passed

    @rule(hours=st.integers(1, 100))
    def wait_long(self, hours: int) -> None:
        self.wait(hours * 3_600_000_000)

    @rule(hours=st.integers(1, 400))
    def jump_ahead(self, hours: int) -> None:
        """The server's clock is set; lease time does not follow."""
        self.world.now_us += hours * 3_600_000_000
        self.model.now_us = self.world.now_us

    @rule(limit=st.integers(1, 3))
    def forget_clients(self, limit: int) -> None:
        self.world.run(clients.ForgetClients(limit=limit))

    @rule(limit=st.integers(1, 5))
    def expire(self, limit: int) -> None:
        self.world.run(keep.Expire(limit=limit))

    @rule(value=st.integers(0, 9), expires=soon_st, name=st.sampled_from(["u", "v"]))
    def write_elsewhere(self, value: int, expires: int, name: str) -> None:
        self.world.set({b"x": value, b"y": value}, expires=expires, table=name, at=value)

    @rule(name=st.sampled_from(["u", "v"]))
    def drop_elsewhere(self, name: str) -> None:
        self.world.run(commands.DropTable(name=name))

    @rule(limit=st.integers(1, 3))
    def sweep(self, limit: int) -> None:
        self.world.run(Sweep(limit=limit))

    @rule(master=st.binary(min_size=16, max_size=16))
    def take_over(self, master: bytes) -> None:
        self.world.run(TakeOver(master=master))

    @rule(number=st.integers(1, 600), client=st.sampled_from([b"c" * 16, b"d" * 16]))
    def answer(self, number: int, client: bytes) -> None:
        asked = [commands.Numbered(command=commands.Nop(), client=client, number=number)]
        if clients.find_answers(self.world, asked) == [None]:
            reply = commands.Done(master=self.world.master, seq=number)
            op = clients.answered_op(asked, [reply], self.world.now_us)
            assert isinstance(op, Op)
            self.world.apply(op)
        assert clients.find_answers(self.world, asked) != [None]

    @rule(share=st.integers(1, 4))
    def pack(self, share: int) -> None:
        """What the index forgets of keys was old enough, and the model forgets it too."""
        before = self._dates()
        self.world.pack(len(self.world.ops()) * share // 4)
        after = self._dates()
        for key, entry in before.items():
            if entry.type == TOMBSTONE:
                is_old = self.buried[key, entry.row] + limits.TOMBSTONE_US <= self.world.lease_us
                assert is_old or key in after
                assert not (is_old and share == 4 and key in after)
            else:
                is_old = entry.timestamp_us + limits.TOMBSTONE_US <= self.world.now_us
                assert is_old or key in after
            if key not in after:
                self.model.forget(key)

    def _dates(self) -> dict[bytes, layout.KvEntry]:
        """Returns the tombstones and aliases of the table."""
        prefix = self.world.tables["t"].prefix
        items = self.world.scan(Tree.KV, prefix, end_of(prefix), 1000)
        found = {key[len(prefix) :]: layout.decode(data) for key, data in items}
        return {key: entry for key, entry in found.items() if not entry.is_value}

    @invariant()
    def tombstones_keep_the_date_of_their_burial(self) -> None:
        for key, entry in self._dates().items():
            if entry.type == TOMBSTONE:
                buried_us = self.buried.setdefault((key, entry.row), self.world.lease_us)
                assert entry.created_us == buried_us

    @invariant()
    def values_are_those_of_the_model(self) -> None:
        expected = [self.model.find(key) for key in KEYS]
        self._compare(self.world.run(commands.Get(table="t", keys=Strings.of(KEYS))), expected)
        page = self.world.decide(commands.Range(table="t", stop=b"e")).reply
        assert page.keys.rows() == [key for key in KEYS if self.model.find(key)]  # type: ignore[attr-defined]
        self._compare(page.entries, [value for value in expected if value])  # type: ignore[attr-defined]

    @invariant()
    def the_index_is_what_the_journal_says(self) -> None:
        self.world.check()
        again = self.world.replayed()
        assert again.trees() == self.world.trees()
        assert again.next_seq == self.world.next_seq
        assert sum(again.live.values()) == sum(self.world.live.values())

    def _compare(self, reply: object, expected: list[Value | None]) -> None:
        assert isinstance(reply, commands.Entries)
        assert len(reply.types) == len(expected)
        for row, value in enumerate(expected):
            found = entry_of(reply, row)
            if value is None:
                assert found.type == commands.Entries.MISSING
                continue
            worked = value.worked_until_us > self.world.lease_us
            assert found.type == Type.INTEGER
            assert int.from_bytes(found.value, "little", signed=True) == value.value
            assert found[2:] == (
                value.timestamp_us,
                value.expires_at_us,
                commands.Entries.WORKED_ON if worked else 0,
                value.created_us,
                value.accessed_us,
                value.ttl_us,
            )


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
