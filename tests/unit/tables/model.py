"""What a key/value table means, in plain Python: objects, and no thought of index or journal."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from fjord.errors import Code


@dataclass
class Value:
    """A value, under its own key and perhaps under others."""

    key: bytes
    value: int
    timestamp_us: int
    expires_at_us: int = 0
    ttl_us: int = 0
    created_us: int = 0
    accessed_us: int = 0
    worked_until_us: int = 0
    persist: bool = True
    below_us: int = 0  # in memory: the timestamp of what the index still has of the key
    aliases: set[bytes] = field(default_factory=set)
    is_gone: bool = False

    def note_nothing(self) -> None:
        self.accessed_us = self.worked_until_us = 0


@dataclass
class Slot:
    """What stands under a key: its own value, a link to another, or a date only."""

    timestamp_us: int
    value: Value | None = None
    is_alias: bool = False


class Model:
    """One table."""

    def __init__(self, now_us: int) -> None:
        self.now_us = now_us
        self.slots: dict[bytes, Slot] = {}

    def find(self, key: bytes) -> Value | None:
        """Returns the live value that a key leads to."""
        slot = self.slots.get(key)
        if slot is None or slot.value is None or not self._is_live(slot.value):
            return None
        if slot.is_alias and key not in slot.value.aliases:
            return None
        return slot.value

    def _is_live(self, value: Value) -> bool:
        return not value.is_gone and not 0 < value.expires_at_us <= self.now_us

    def forget(self, key: bytes) -> None:
        """The date of a key that has no value is not known any more."""
        slot = self.slots[key]
        if slot.value is not None and not slot.is_alias and not slot.value.persist:
            slot.value.below_us = 0
            return
        assert self.find(key) is None
        self._clear(key)

    def _leads_to(self, key: bytes) -> bytes:
        found = self.find(key)
        return found.key if found else key

    def _own_us(self, key: bytes) -> int:
        """Returns the timestamp of what stands under a key itself."""
        slot = self.slots.get(key)
        if slot is None:
            return 0
        if slot.value is not None and not slot.is_alias:
            return slot.value.timestamp_us
        return slot.timestamp_us

    def _clear(self, key: bytes) -> None:
        """Whatever stands under a key is there no more."""
        slot = self.slots.pop(key, None)
        if slot and slot.value and slot.is_alias:
            slot.value.aliases.discard(key)
        elif slot and slot.value:
            slot.value.is_gone = True

    def _winners(self, keys: list[bytes], at_us: int) -> dict[bytes, int]:
        """Returns the keys that a write reaches, each with the last row that does."""
        led = [self._leads_to(key) for key in keys]
        return {key: row for row, key in enumerate(led) if self._own_us(key) <= at_us}

    # -- writes -----------------------------------------------------------------------------------

    def set(
        self,
        items: list[tuple[bytes, int]],
        at_us: int,
        *,
        expires_at_us: int = 0,
        ttl_us: int = 0,
        overwrite: bool = True,
        persist: bool = True,
        also: list[bytes] | None = None,
    ) -> Code | None:
        keys = [key for key, _ in items]
        if not overwrite and any(map(self.find, keys)):
            return Code.EXISTS
        if not persist and any(self._leads_to(key) != key for key in keys):
            return Code.EXISTS
        winners = self._winners(keys, at_us)
        if not winners:
            return None
        for key in also or []:
            found = self.find(key)
            if found and found.key not in winners:
                return Code.EXISTS
        if ttl_us and not expires_at_us:
            expires_at_us = self.now_us + ttl_us
        for key, row in winners.items():
            new = Value(key, items[row][1], at_us, expires_at_us, ttl_us, at_us, persist=persist)
            self._put(new, also)
        return None

    def _put(self, new: Value, also: list[bytes] | None) -> None:
        key, at_us, old = new.key, new.timestamp_us, self.find(new.key)
        slot = self.slots.get(key)
        own = slot.value if slot and not slot.is_alias else None
        if own is not None:
            new.below_us = at_us if own.persist else own.below_us
        else:
            new.below_us = slot.timestamp_us if slot else 0
        aliases = set()
        if old is not None:
            new.created_us = old.created_us
            aliases = old.aliases
        linked = [name for name in also or [] if name != key and self._may_link(name, old, at_us)]
        self._clear(key)
        self.slots[key] = Slot(at_us, new)
        if also is None and new.persist:
            new.aliases = aliases
            for name in aliases:
                self.slots[name].value = new
        for name in linked:
            self._clear(name)
            self.slots[name] = Slot(at_us, new, is_alias=True)
            new.aliases.add(name)

    def _may_link(self, name: bytes, target: Value | None, at_us: int) -> bool:
        found = self.find(name)
        return found is target if found else self._own_us(name) <= at_us

    def delete(self, keys: list[bytes], at_us: int, *, purge: bool = False) -> None:
        led = {key: self._leads_to(key) for key in keys}
        winners = self._winners(keys, at_us)
        for key in winners:
            slot = self.slots.get(key)
            is_known = slot is not None and not (
                slot.value and not slot.value.persist and not slot.value.below_us
            )
            self._clear(key)
            if not purge:
                self.slots[key] = Slot(at_us)
            elif is_known:
                for name in [name for name, target in led.items() if target == key]:
                    self._clear(name)

    def touch(
        self, keys: list[bytes], lease_us: int, *, expires_at_us: int | None, worked_us: int
    ) -> list[Value | None]:
        """Returns what is touched, as it is then, and None for the rest."""
        found: list[Value | None] = []
        taken: set[bytes] = set()
        for key in keys:
            value = self.find(key)
            if value and worked_us and (value.worked_until_us > lease_us or value.key in taken):
                value = None
            found.append(value)
            if value is None:
                continue
            taken.add(value.key)
            value.accessed_us = self.now_us
            if expires_at_us is not None and value.expires_at_us:
                by_ttl_us = self.now_us + value.ttl_us if value.ttl_us else 0
                value.expires_at_us = max(value.expires_at_us, expires_at_us, by_ttl_us)
            if worked_us:
                value.worked_until_us = lease_us + worked_us
        return found

    def add(self, key: bytes, operand: int, at_us: int) -> Code | None:
        value = self.find(key)
        if value is None:
            return Code.NOT_FOUND
        value.value += operand
        value.timestamp_us = max(value.timestamp_us + 1, at_us)
        value.note_nothing()
        return None

    def rename(self, key: bytes, to: bytes, at_us: int, *, overwrite: bool) -> Code | None:
        value, there = self.find(key), self.find(to)
        if value is None:
            return Code.NOT_FOUND
        if key == to:
            return None
        if there is not None and not overwrite:
            return Code.EXISTS
        at_us = max(at_us, value.timestamp_us + 1, self._own_us(to) + 1)
        if value.key != key:
            self._rename_alias(value, key, to, at_us)
            return None
        moved = replace(value, key=to, timestamp_us=at_us, aliases=set())
        moved.note_nothing()
        moved.below_us = self._below_us(to, at_us)
        further = [name for name in value.aliases if self.find(name) is value and name != to]
        self._clear(to)
        self._clear(key)
        self.slots[to] = Slot(at_us, moved)
        for name in further:
            self.slots[name] = Slot(at_us, moved, is_alias=True)
            moved.aliases.add(name)
        if value.persist:
            self.slots[key] = Slot(at_us)
        elif value.below_us:
            self.slots[key] = Slot(value.below_us)
        return None

    def _rename_alias(self, value: Value, key: bytes, to: bytes, at_us: int) -> None:
        self._clear(key)
        if to != value.key:
            self._clear(to)
            self.slots[to] = Slot(at_us, value, is_alias=True)
            value.aliases.add(to)
        self.slots[key] = Slot(at_us)

    def _below_us(self, key: bytes, at_us: int) -> int:
        """Returns the date that the index has of a key, once a value in memory stands there."""
        slot = self.slots.get(key)
        if slot is None:
            return 0
        if slot.value is None:
            return slot.timestamp_us
        if slot.is_alias:
            return at_us if self.find(key) else slot.timestamp_us
        return at_us if slot.value.persist else slot.value.below_us
