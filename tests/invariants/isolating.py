"""I13: what is read as of a snapshot is the fold of all writes up to it, each of them whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tests.invariants.histories import Event, History, Outcome, Violation
from tests.invariants.stream_histories import Change, Message, Opened, Passed, Retired, Saw, Wrote
from tests.invariants.terms import Terms

State = dict[bytes, bytes]


def isolation(history: History, terms: Terms) -> list[Violation]:
    """I13: snapshots are exact, hold whole transactions, and are of the moment they were opened."""
    writes = _Writes(history)
    retired = [event for event in history if isinstance(event, Retired)]
    found: list[Violation] = []
    for event in history:
        if isinstance(event, Opened):
            found += _opening(event, writes)
        elif isinstance(event, Saw):
            found += _seeing(event, writes)
        elif isinstance(event, Passed):
            found += _passing(event, writes, _gone(event, retired))
    for snapshot in dict.fromkeys(event.snapshot for event in history if isinstance(event, Saw)):
        views = [event for event in history if isinstance(event, Saw)]
        found += _halves([view for view in views if view.snapshot == snapshot], writes)
    return found


class _Writes:
    """All transactions: those that were answered, and those that nobody knows of."""

    def __init__(self, history: History) -> None:
        wrote = [event for event in history if isinstance(event, Wrote)]
        self.answered = [event for event in wrote if event.outcome is Outcome.OK]
        self.unsure = [event for event in wrote if event.outcome is Outcome.UNKNOWN]

    def changes(self, table: str, until: int) -> list[Change]:
        """Returns the changes of a table that were answered, up to a seq, in order."""
        every = [change for write in self.answered for change in write.changes]
        found = [change for change in every if change.table == table and change.seq <= until]
        return sorted(found, key=lambda change: change.seq)

    def perhaps(self, table: str, event: Event) -> set[tuple[bytes, bytes | None]]:
        """Returns keys and values of a table that may be there when something happens, or not."""
        return {
            (change.key, change.value)
            for write in self.unsure
            for change in write.changes
            if change.table == table and write.began < event.ended
        }


def fold(changes: Iterable[Change]) -> State:
    """Returns what changes in the order of their seqs come to."""
    state: State = {}
    for change in changes:
        if change.value is None:
            state.pop(change.key, None)
        else:
            state[change.key] = change.value
    return state


def _opening(opened: Opened, writes: _Writes) -> Iterator[Violation]:
    snapshot = opened.snapshot
    for write in writes.answered:
        seqs = [change.seq for change in write.changes]
        if min(seqs) <= snapshot < max(seqs):
            yield _wrong(f"the snapshot {snapshot} has half of a transaction", opened, write)
        elif write.ended <= opened.began and max(seqs) > snapshot:
            yield _wrong(f"the snapshot {snapshot} lacks a write from before", opened, write)
        elif write.began >= opened.ended and min(seqs) <= snapshot:
            yield _wrong(f"the snapshot {snapshot} has a write from later", opened, write)


def _seeing(saw: Saw, writes: _Writes) -> Iterator[Violation]:
    expected = fold(writes.changes(saw.table, saw.snapshot))
    perhaps = writes.perhaps(saw.table, saw)
    found = dict(saw.entries)
    for key in sorted({*expected, *found}):
        value = found.get(key)
        if value != expected.get(key) and (key, value) not in perhaps:
            text = f"at {saw.snapshot} {saw.table} has {key!r} = {value!r}"
            yield _wrong(f"{text} and not {expected.get(key)!r}", saw)


def _halves(views: Sequence[Saw], writes: _Writes) -> Iterator[Violation]:
    """Of a write that nobody knows of, a snapshot has all or nothing."""
    found = {view.table: dict(view.entries) for view in views}
    for write in writes.unsure:
        before = [other for other in writes.answered if other.ended <= write.began]
        shown, hidden = [], []
        for change in write.changes:
            if change.table not in found:
                continue
            value = found[change.table].get(change.key)
            older = [one for other in before for one in other.changes if one.table == change.table]
            old = fold(sorted(older, key=lambda one: one.seq)).get(change.key)
            if value == change.value and value != old:
                shown.append(change)
            elif value == old:
                hidden.append(change)
        if shown and hidden:
            text = f"at {views[0].snapshot} there is {shown[0].key!r} of a transaction"
            yield _wrong(f"{text} and not {hidden[0].key!r}", *views, write)


def _passing(read: Passed, writes: _Writes, gone: int) -> Iterator[Violation]:
    yield from _shape(read)
    for write in writes.answered:
        seqs = [change.seq for change in write.changes]
        if min(seqs) <= read.until < max(seqs):
            yield _wrong(f"a pass that ends at {read.until} has half a transaction", read, write)
    changes = writes.changes(read.table, read.until)
    if not read.keeps_all:
        newest = {change.key: change for change in changes}
        changes = [change for change in changes if newest[change.key] is change]
    expected = {
        change.seq: Message(change.seq, change.key, change.value)
        for change in changes
        if read.after < change.seq <= read.next_after
    }
    perhaps = writes.perhaps(read.table, read)
    found = {message.seq: message for message in read.messages}
    for seq in sorted({*expected, *found}):
        problem = _difference(found.get(seq), expected.get(seq))
        if problem is None or _is_excused(found.get(seq), expected.get(seq), perhaps, gone, read):
            continue
        yield _wrong(f"up to {read.until}, {read.table} {problem}", read)


def _shape(read: Passed) -> Iterator[Violation]:
    """A piece of a pass is in order, inside its bounds, and says where it ends."""
    seqs = [message.seq for message in read.messages]
    if seqs != sorted(set(seqs)):
        yield _wrong(f"{read.table} came out of order: {seqs}", read)
    if any(not read.after < seq <= read.next_after for seq in seqs):
        text = f"{read.table} has messages that are not from {read.after} to {read.next_after}"
        yield _wrong(f"{text}: {seqs}", read)
    if read.next_after < read.after or read.next_after > max(read.until, read.after):
        yield _wrong(f"a pass went from {read.after} to {read.next_after} of {read.until}", read)
    if read.is_end and read.next_after < read.until:
        yield _wrong(f"a pass ended at {read.next_after} and not at {read.until}", read)


def _difference(found: Message | None, expected: Message | None) -> str | None:
    if found == expected:
        return None
    if found is None:
        return f"lacks {expected}"
    return f"has {found}" + ("" if expected is None else f" and not {expected}")


def _is_excused(
    found: Message | None,
    expected: Message | None,
    perhaps: set[tuple[bytes, bytes | None]],
    gone: int,
    read: Passed,
) -> bool:
    """Says whether a difference proves nothing: of what nobody knows, and of what may go."""
    if found is not None:
        return expected is None and (found.key, found.value) in perhaps
    assert expected is not None
    is_replaced = not read.keeps_all and any(key == expected.key for key, _ in perhaps)
    return expected.value is None or expected.seq <= gone or is_replaced


def _gone(read: Passed, retired: Sequence[Retired]) -> int:
    """Returns the last seq of a table that may be gone when it is read."""
    lasts = [
        event.last for event in retired if event.table == read.table and event.began < read.ended
    ]
    return max(lasts, default=0)


def _wrong(text: str, *events: Event) -> Violation:
    return Violation(rule="I13", text=text, events=events)
