"""I7: the mark of a subscriber goes forward, or where somebody seeks; and nowhere by itself."""

from __future__ import annotations

from collections.abc import Iterator

from tests.invariants.histories import Event, History, Outcome, Violation
from tests.invariants.stream_histories import How, Positioned, Unsubscribed
from tests.invariants.terms import Terms

_SETS = (How.SUBSCRIBE, How.SEEK)


def marks(history: History, terms: Terms) -> list[Violation]:
    """I7: marks never go down but by a seek, survive a restart, and stay behind the tail."""
    told = [event for event in history if isinstance(event, Positioned)]
    gone = [event for event in history if isinstance(event, Unsubscribed)]
    found: list[Violation] = []
    for name in dict.fromkeys(event.name for event in told):
        life = _Life(
            [event for event in told if event.name == name],
            [event for event in gone if event.name == name and _may_count(event.outcome)],
        )
        found += life.problems()
    return found


class _Life:
    """All that is known of one subscriber."""

    def __init__(self, told: list[Positioned], gone: list[Unsubscribed]) -> None:
        self._told = told
        self._gone = gone
        self._answers = [event for event in told if event.outcome is Outcome.OK]

    def problems(self) -> Iterator[Violation]:
        for event in self._answers:
            yield from self._of_one(event)
            for other in self._answers:
                if other.ended <= event.began and not self._is_new(other, event):
                    yield from self._of_two(other, event)
        yield from self._popped_twice()

    def _of_one(self, event: Positioned) -> Iterator[Violation]:
        if -1 < event.tail < event.seq:
            yield _wrong(f"is at {event.seq}, and the tail is {event.tail}", event)
        if event.how is How.ACKNOWLEDGE:
            if event.seq < event.asked:
                yield _wrong(f"is at {event.seq} after {event.asked} was acknowledged", event)
            if event.given != event.epoch:
                text = f"took an acknowledgement of epoch {event.given} in epoch {event.epoch}"
                yield _wrong(text, event)
        if event.how not in _SETS and not self._is_explained(event):
            yield _wrong(f"is at {event.seq}, where nobody has set it", event)

    def _is_explained(self, event: Positioned) -> bool:
        """Says whether somebody has set the mark to where it is, or may have."""
        for other in self._told:
            if other.began >= event.ended or not _may_count(other.outcome):
                continue
            if other.how in _SETS and (
                other.outcome is Outcome.UNKNOWN
                or (other.seq == event.seq and other.epoch == event.epoch)
            ):
                return True
            # Each end of an epoch makes old acknowledgements void.
            asked_now = other.how is How.ACKNOWLEDGE and other.given == event.epoch
            if asked_now and other.asked == event.seq:
                return True
        return False

    def _of_two(self, first: Positioned, event: Positioned) -> Iterator[Violation]:
        if event.epoch < first.epoch:
            yield _wrong(f"went from epoch {first.epoch} to {event.epoch}", first, event)
        if event.epoch == first.epoch and event.seq < first.seq:
            yield _wrong(f"went from {first.seq} to {event.seq} without a seek", first, event)
        seeks = [
            other
            for other in self._told
            if other.how is How.SEEK
            and _may_count(other.outcome)
            and other.began < event.ended
            and other.ended > first.began
            and other is not first
        ]
        if event.epoch - first.epoch > len(seeks):
            text = f"went from epoch {first.epoch} to {event.epoch} by {len(seeks)} seeks"
            yield _wrong(text, first, event)

    def _is_new(self, first: Positioned, event: Positioned) -> bool:
        """Says whether it may have been taken away, and made again, between two answers."""
        return any(gone.began < event.ended and gone.ended > first.began for gone in self._gone)

    def _popped_twice(self) -> Iterator[Violation]:
        """Of all who say where they expect the mark to be, one moves it from there."""
        movers: dict[tuple[int, int], Positioned] = {}
        for event in self._answers:
            if event.how is not How.ACKNOWLEDGE or not -1 < event.expected < event.asked:
                continue
            other = movers.setdefault((event.epoch, event.expected), event)
            if other is not event and not self._is_new(other, event):
                yield _wrong(f"was moved from {event.expected} by two", other, event)


def _may_count(outcome: Outcome) -> bool:
    return outcome is not Outcome.REFUSED


def _wrong(text: str, *events: Event) -> Violation:
    named = events[-1]
    assert isinstance(named, Positioned)
    return Violation(rule="I7", text=f"{named.name} {text}", events=events)
