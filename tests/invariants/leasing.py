"""I14: one worker has a job at a time, it is done once, and its timeouts are counted exactly."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.invariants import histories
from tests.invariants.terms import Terms, before

_Answer = histories.Finished | histories.Touched | histories.Failed


def leases(history: histories.History, terms: Terms) -> list[histories.Violation]:
    """I14: at most one valid xid, one DONE, exact counts, and nothing after DONE."""
    story = _Story(history, terms)
    found = list(story.answer_problems())
    for row, takes in story.takes.items():
        found += story.done_problems(row, takes)
        for one, other in pairwise(takes):
            found += story.overlap_problems(one, other)
        found += story.count_problems(takes)
    return found


class _Story:
    """A history, sorted by what its events are about."""

    def __init__(self, history: histories.History, terms: Terms) -> None:
        self._terms = terms
        self.takes: dict[int, list[histories.Taken]] = defaultdict(list)
        self._by_xid: dict[int, histories.Taken] = {}
        self._answers: dict[int, list[_Answer]] = defaultdict(list)
        self._timeouts: dict[int, list[histories.TimedOut]] = defaultdict(list)
        self._pushes: dict[bytes, list[histories.Pushed]] = defaultdict(list)
        self._revived: dict[int, list[histories.Event]] = defaultdict(list)
        self._looks: dict[int, list[histories.Looked]] = defaultdict(list)
        for event in sorted(history, key=lambda event: event.began):
            self._note(event)

    def _note(self, event: histories.Event) -> None:
        if isinstance(event, histories.Taken):
            self.takes[event.row].append(event)
            self._by_xid[event.xid] = event
        elif isinstance(event, histories.Finished | histories.Touched | histories.Failed):
            self._answers[event.xid].append(event)
        elif isinstance(event, histories.TimedOut):
            self._timeouts[event.xid].append(event)
        elif isinstance(event, histories.Pushed) and event.outcome is not histories.Outcome.REFUSED:
            self._pushes[event.key].append(event)
        elif isinstance(event, histories.Revived | histories.Died):
            self._revived[event.row].append(event)
        elif isinstance(event, histories.Looked):
            for row in event.rows:
                self._looks[row.row].append(event)

    # -- answers to one xid -----------------------------------------------------------------------

    def answer_problems(self) -> Iterator[histories.Violation]:
        """Yields answers that were accepted and should not have been."""
        for xid, answers in self._answers.items():
            for answer in answers:
                if answer.outcome is not histories.Outcome.OK:
                    continue
                take = self._by_xid.get(xid)
                if take is None or before(answer, take):
                    yield _violation(f"xid {xid} was never given out", answer)
                    continue
                newer = [other for other in self.takes[take.row] if other.began > take.began]
                if newer and before(newer[0], answer):
                    yield _violation(f"the stale xid {xid} was accepted", newer[0], answer)
                for end in self._ends(take):
                    if end is not answer and before(end, answer):
                        yield _violation(f"xid {xid} was accepted after its end", end, answer)
                        break

    def _ends(self, take: histories.Taken) -> list[histories.Event]:
        """Returns what ended a lease, for sure."""
        ends: list[histories.Event] = list(self._timeouts[take.xid])
        ends += [
            answer
            for answer in self._answers[take.xid]
            if isinstance(answer, histories.Finished | histories.Failed)
            and answer.outcome is histories.Outcome.OK
        ]
        return ends

    # -- one row ----------------------------------------------------------------------------------

    def done_problems(
        self, row: int, takes: list[histories.Taken]
    ) -> Iterator[histories.Violation]:
        dones: list[histories.Event] = [take for take in takes if take.done]
        for take in takes:
            dones += [
                answer
                for answer in self._answers[take.xid]
                if isinstance(answer, histories.Finished) and answer.outcome is histories.Outcome.OK
            ]
        if len(dones) > 1:
            yield _violation(f"row {row} was done {len(dones)} times", *dones)
        for done in dones[:1]:
            for take in takes:
                if before(done, take):
                    yield _violation(f"row {row} was handed out after it was done", done, take)
            for look in self._looks[row]:
                if before(done, look):
                    yield _violation(f"row {row} is there after it was done", done, look)

    def overlap_problems(
        self, one: histories.Taken, other: histories.Taken
    ) -> Iterator[histories.Violation]:
        """Two takes of one row: the first lease must have been over before the second began."""
        returns: list[histories.Event] = [
            answer
            for answer in self._answers[one.xid]
            if isinstance(answer, histories.Failed)
            and answer.outcome is not histories.Outcome.REFUSED
        ]
        returns += self._timeouts[one.xid]
        if any(event.began < other.ended for event in returns) or one.done:
            return
        deadline = one.began + one.lease_us
        for answer in self._answers[one.xid]:
            if isinstance(answer, histories.Touched) and answer.outcome is histories.Outcome.OK:
                deadline = max(deadline, answer.began + answer.lease_us)
        if other.ended < deadline or not one.lease_us:
            text = f"row {one.row} has the xids {one.xid} and {other.xid} at a time"
            yield _violation(text, one, other)

    def count_problems(self, takes: list[histories.Taken]) -> Iterator[histories.Violation]:
        possible, previous = {0}, None
        for take in takes:
            if previous is not None:
                possible = self._counts_between(previous, take)
            if take.timeouts not in possible:
                expected = " or ".join(map(str, sorted(possible)))
                text = f"row {take.row} timed out {take.timeouts} times, expected {expected}"
                yield _violation(text, take)
            previous = take

    def _counts_between(self, one: histories.Taken, other: histories.Taken) -> set[int]:
        """Returns what the counter may be when a row is taken again."""
        fails = [
            answer
            for answer in self._answers[one.xid]
            if isinstance(answer, histories.Failed)
            and answer.outcome is not histories.Outcome.REFUSED
        ]
        possible = {min(255, one.timeouts + 1)}
        returned: histories.Event | None = next(iter(self._timeouts[one.xid]), None)
        if fails:
            (fail, *_), returned = fails, fails[0]
            if not fail.counts:
                unsure = fail.outcome is histories.Outcome.UNKNOWN
                possible = {one.timeouts} | (possible if unsure else set())
        if any(
            before(one, event) and event.began < other.ended for event in self._revived[one.row]
        ):
            return {0}
        for push in self._pushes[one.key] if self._terms.merges else ():
            if push.began >= other.ended or before(push, one):
                continue
            surely_reset = (
                returned is not None
                and before(returned, push)
                and before(push, other)
                and push.outcome is histories.Outcome.OK
                and push.value == other.value
            )
            possible = {0} if surely_reset else possible | {0}
        return possible


def _violation(text: str, *events: histories.Event) -> histories.Violation:
    return histories.Violation(rule="I14", text=text, events=events)
