"""Sealing: old history leaves the journal for cold blocks, one round at a time.

    plan (fixes a range) -> sync -> write the blocks, outside the engine -> tell the engine
    plan what retention removes -> sync -> remove the files -> tell the engine

`Sealing` belongs to the engine and plans: which part of the journal goes to blocks, and which
blocks are removed.  A table is due when it has as many new rows as a block holds, when the oldest
of them has waited long enough, or when some full segments wait for it; if space is short, one
segment is enough.  Only durable rows go to blocks, and a segment stays until blocks have all of its
history.

`Rounds` runs the rounds, on its own thread, while the engine continues.  A round can be interrupted
at any step: a fixed range is planned again unchanged, and files to be removed are named again.  The
server and an embedded database differ only in how a call gets its turn on the engine.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from fjord import kinds, limits, streams
from fjord.clock import Clock
from fjord.commands import Command, Done, Refusal, Reply, SealNow
from fjord.engine.group import Group
from fjord.errors import ClosedError, Code, FjordError
from fjord.history import Block, SealedRange, SealPlan
from fjord.tables import generations, staging
from fjord.tables.meaning import Note
from fjord.tables.state import Table, Tree
from fjord.tables.streams import history, layout
from fjord.tables.streams.layout import History

if TYPE_CHECKING:
    from fjord.engine.engine import Engine


T = TypeVar("T")

# The delay after a failed round, doubled after each further failure.
_REST_US_FIRST: Final = 1_000_000
_REST_US_MAX: Final = 300 * 1_000_000

# Makes a call on the engine in its turn; returns when what it wrote is durable.
Turn = Callable[[Callable[[], None]], None]


def in_turn(turn: Turn, call: Callable[[], T]) -> T:
    """Returns the result of a call on the engine, once everything that it has seen is durable."""
    found: list[T] = []
    turn(lambda: found.append(call()))
    return found[0]


class Shelf(Protocol):
    """Where blocks are kept; its calls may take long."""

    def write(self, journal: str, plan: SealPlan) -> list[Block]:
        """Writes blocks durably; existing ones stay the same."""

    def remove(self, blocks: Sequence[Block], *, wipes: bool = False) -> None:
        """Removes the existing files of blocks; `wipes`: overwritten first."""

    def stop(self) -> None:
        """Ends the current write, and every later one, with an error."""


class Sealing:
    """Tracks how much of each table is in blocks, and how much is new."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._memory, self._clock = engine.memory, engine.clock
        self._journal = engine.journal
        self._began_seq = engine.applied_seq  # what is older may be of any table
        self._ended_seq = engine.applied_seq  # of the last frame
        # A seq before which a table has nothing, by table; of older ones that is not known.
        self._first_seqs = {table.id: 0 for table in engine.tables.values()}
        self._seen: Mapping[str, Table] = engine.tables
        self._last_seqs: dict[int, int] = {}  # of tables that were written to since
        self._rows: dict[int, int] = {}  # how many are new, by table
        self._planned: dict[int, int] = {}  # how many of them the last plan has
        self._since_us: dict[int, int] = {}  # wall time of the first of them, or of the start
        self._histories: dict[int, History] = {}
        self._by_id: dict[int, Table] = {}  # tables with history
        self._known: tuple[Mapping[str, Table] | None, bool] = (None, False)
        self._lasts: dict[int, Block] = {}  # the last block, by table, once it was looked up
        self._due_us: int | None = None
        self._written: set[int] = set()  # tables whose dates are not part of that yet
        self._held: tuple[int, bool] = (0, False)  # a segment, and whether it has to stay
        self.location = ""  # where blocks are; empty: nobody writes any
        self._first_stage: int | None = None  # seq of the oldest rows that are staged
        self.cold_seqs: Mapping[int, int] = {}  # the first seq that is in a block, by table
        # The last seq that is in a block, or was until retention took it away, by table.
        items = history.all_items(engine.scan_index)
        self.cold_lasts = {block.table: block.last for block, _ in items}
        self.shared_seq = 0  # blocks up to here may be those of another directory, too

    def look(self) -> None:
        """Reads how far each table is in blocks, and plans the next round."""
        items = self._engine.scan_index(Tree.HISTORY, b"", None, limits.TABLES_MAX)
        self._histories = {
            int.from_bytes(key, "big"): layout.decode_history(data) for key, data in items
        }
        self.look_at_stages()
        dates = [self._table_due_us(table) for table in self._tables().values()]
        firsts = history.first_blocks(self._engine.scan_index)
        self.cold_seqs = {block.table: block.first for block, _ in firsts}
        self._due_us = None
        self._written.clear()
        replaced = history.replaced_blocks(self._engine.scan_index)
        removal_us = min(map(_removal_us, replaced), default=None)
        for date_us in (*dates, self._retirement_us(firsts), removal_us):
            self._bring_forward(date_us)

    def look_at_stages(self) -> None:
        """Reads which rows are staged: their segments have to stay."""
        self._first_stage = min(staging.first_seqs(self._engine.scan_index), default=None)
        self._held = (0, False)

    def note(self, group: Group, *, looks: bool) -> None:
        """Notes the rows of a frame, by table, and its ops on blocks and stages."""
        notes = group.notes
        self._held = (0, False)
        self._last_seqs.update(notes.last_seqs)
        if self._seen is not self._engine.tables:
            self._seen = self._engine.tables
            first_seq = self._ended_seq + 1
            known = self._first_seqs
            self._first_seqs = {
                table.id: known.get(table.id, first_seq) for table in self._seen.values()
            }
        self._ended_seq = group.next_seq - 1
        if self.location:
            for table_id, rows in notes.table_rows.items():
                self._rows[table_id] = self._rows.get(table_id, 0) + rows
                self._since_us.setdefault(table_id, group.wall_us)
            self._written.update(notes.table_rows)
        if looks:
            self.look()
        elif Note.STAGES in notes.seen:
            self.look_at_stages()

    def due_us(self) -> int | None:
        """Returns the wall time when a round is due; None: there is nothing to seal."""
        if not self.location:
            return None
        if self._written:
            tables = self._tables()
            for table_id in self._written & tables.keys():
                self._bring_forward(self._table_due_us(tables[table_id]))
            self._written.clear()
        return self._due_us

    def is_held(self, segment: int) -> bool:
        """Notes that a closed segment has to stay, since not all of it is in blocks."""
        if self._held[0] != segment:
            firsts = {one.segment: one.first_seq for one in self._journal.segments}
            self._held = (segment, self._holds(firsts[segment], firsts[segment + 1]))
        return self._held[1]

    def _holds(self, first: int, end: int) -> bool:
        """Returns whether the index may still point to rows of these seqs, or no block has them."""
        if self._first_stage is not None and self._first_stage < end:
            return True
        return any(
            self._last_seq(table) >= max(first, self._history(table).forgotten + 1)
            and max(self._first_seqs.get(table.id, 0), self._history(table).forgotten + 1) < end
            for table in self._tables().values()
        )

    # -- rounds -----------------------------------------------------------------------------------

    def plan_seal(self, table: str = "", *, now: bool = False) -> SealPlan | None:
        """Fixes the next ranges for blocks; the caller syncs before it writes them.

        Args:
            table: only this one; empty = all.
            now: everything durable, not only what is due.
        """
        found = [one for one in self._tables().values() if not table or one.name == table]
        wanted = [one for one in found if self._is_wanted(one, now=now)]
        begin = min((self._first(one) for one in wanted), default=0)
        end = min(self._reach(begin), self._engine.durable_seq)
        fresh = [
            one for one in wanted if not self._history(one).sealing and self._first(one) <= end
        ]
        if fresh:
            tag = int.from_bytes(self._engine.master[:8], "big")
            lasts = [(one.id, end) for one in fresh]
            self._run(history.BeginSeal(lasts=lasts, tag=tag))
            self.look()
        ranges = [self._range(one) for one in wanted if self._history(one).sealing]
        self._planned = {one.table: self._rows.get(one.table, 0) for one in ranges}
        if not ranges:
            self.look()
            return None
        return SealPlan(self._engine.writer.header.shard, ranges)

    def finish_seal(self, plan: SealPlan, blocks: Sequence[Block]) -> None:
        """Records the blocks of a plan; the caller syncs."""
        self._run(history.EndSeal(plan=plan, blocks=blocks))
        self._lasts.update({block.table: block for block in blocks})
        self.cold_lasts.update({block.table: block.last for block in blocks})
        for where in plan.ranges:
            # Rows that arrived while the blocks were written still count.
            planned = self._planned.pop(where.table, 0)
            self._rows[where.table] = self._rows.get(where.table, 0) - planned
            self._since_us.pop(where.table, None)
        self.look()

    def plan_retirement(self) -> list[Block]:
        """Takes blocks out of use that are too old; returns all whose files are to be removed."""
        now_us = self._clock.wall_us()
        for table in self._engine.tables.values():
            gone = self._outdated(table, now_us)
            if gone:
                self._run(history.Retire(blocks=gone))
        items = history.all_items(self._engine.scan_index)
        retired = [block for block, is_retired in items if is_retired]
        replaced = history.replaced_blocks(self._engine.scan_index)
        retired += [block for block in replaced if _removal_us(block) <= now_us]
        shared = [block for block in retired if block.last <= self.shared_seq]
        if shared:
            self._run(history.Gone(blocks=shared))
        return [block for block in retired if block.last > self.shared_seq]

    def _outdated(self, table: Table, now_us: int) -> list[Block]:
        """Returns the blocks of a table that are too old."""
        if table.kind is kinds.Kind.STREAM:
            settings = streams.decode_settings(table.settings)
            if settings.retention_us or settings.retention_bytes:
                return history.outdated(table, self.blocks(table.name), now_us)
        begins = self._begins(table)
        return [block for block in self.blocks(table.name) if block.last < begins] if begins else []

    def _begins(self, table: Table) -> int:
        """Returns the seq before which a jobs table wants no history; 0 = it wants all of it."""
        listed = self._memory.generations.get(table.id)
        return generations.history_begins(table, listed) if listed else 0

    def finish_retirement(self, blocks: Sequence[Block]) -> None:
        """Records that the files of blocks are gone."""
        if blocks:
            self._run(history.Gone(blocks=blocks))
        self.look()

    def blocks(self, table: str) -> list[Block]:
        """Returns the blocks of a table that are in use, in order."""
        found = self._engine.tables[table]
        items = history.all_items(self._engine.scan_index, found.prefix)
        return [block for block, is_retired in items if not is_retired]

    def _run(self, command: Command) -> None:
        reply = self._engine.run_internal(command)
        if isinstance(reply, Refusal):
            raise reply.error()

    # -- one table --------------------------------------------------------------------------------

    def _tables(self) -> dict[int, Table]:
        """Returns the tables that have history, by id."""
        known = (self._engine.tables, bool(self.location))
        if self._known[0] is not known[0] or self._known[1] is not known[1]:
            self._known = known
            self._by_id = {
                table.id: table
                for table in known[0].values()
                if history.has_history(table, jobs_too=known[1])
            }
        return self._by_id

    def _history(self, table: Table) -> History:
        return self._histories.get(table.id) or _NO_HISTORY

    def _last_seq(self, table: Table) -> int:
        """Returns a seq after which the table has nothing."""
        return self._last_seqs.get(table.id, self._began_seq)

    def _is_new(self, table: Table) -> bool:
        """Says whether a table may have rows that are not in blocks."""
        return self._last_seq(table) > self._history(table).sealed

    def _is_wanted(self, table: Table, *, now: bool) -> bool:
        if self._history(table).sealing:
            return True
        if now:
            return self._is_new(table)
        date_us = self._table_due_us(table)
        return date_us is not None and date_us <= self._clock.wall_us()

    def _first(self, table: Table) -> int:
        first = max(self._history(table).sealed + 1, self._journal.first_seq)
        return max(first, self._first_seqs.get(table.id, 0))

    def _reach(self, begin: int) -> int:
        """Returns the end of the range for one child process, beginning at a seq."""
        segments = self._journal.segments
        at = bisect.bisect_right(segments, begin, key=lambda header: header.first_seq) - 1
        # If space is short, one segment is sealed first, so that it can be removed.
        bytes_max = 0 if self._engine.space.is_short else limits.SEAL_BYTES_MAX
        first = max(at, 0)
        size = self._journal.segment_bytes(segments[first].segment)
        following = first + max(1, bytes_max // max(1, size))
        return segments[following].first_seq - 1 if following < len(segments) else 2**63

    def _table_due_us(self, table: Table) -> int | None:
        """Returns when a table is to be sealed, 0 = at once, None = it has nothing new."""
        if self._history(table).sealing:
            return 0
        if not self._is_new(table):
            return None
        settings = _settings(table)
        ends = [header.first_seq for header in self._journal.segments[1:]]
        closed = len(ends) - bisect.bisect_right(ends, self._first(table))
        if closed >= (1 if self._engine.space.is_short else limits.SEAL_SEGMENTS):
            return 0
        if self._rows.get(table.id, 0) >= settings.block_rows:
            return 0
        now_us = self._clock.wall_us()
        # A clock that was set back must not make anything younger.
        since_us = self._since_us[table.id] = min(self._since_us.get(table.id, now_us), now_us)
        return since_us + settings.block_age_us

    def _retirement_us(self, firsts: Sequence[tuple[Block, bool]]) -> int | None:
        """Returns when the first block is too old, 0 = files are to be removed now."""
        dates: list[int] = []
        for block, is_retired in firsts:
            table = self._by_id.get(block.table)
            if is_retired:
                return 0
            if table is not None and table.kind is kinds.Kind.STREAM:
                settings = streams.decode_settings(table.settings)
                if settings.retention_us:
                    dates.append(block.max_us + settings.retention_us + 1)
            elif table is not None and block.last < self._begins(table):
                return 0
        return min(dates, default=None)

    def _bring_forward(self, date_us: int | None) -> None:
        if date_us is not None:
            self._due_us = date_us if self._due_us is None else min(date_us, self._due_us)

    def _range(self, table: Table) -> SealedRange:
        found, last = self._history(table), self._last_block(table)
        return SealedRange(
            table=table.id,
            name=table.name,
            kind=table.kind.number,
            # Ranges sealed after the last block had no rows, so the blocks adjoin.
            first=(last.last if last else found.sealed) + 1,
            last=found.sealing,
            tag=found.tag,
            block_rows=_settings(table).block_rows,
            previous=last.name if last else "",
        )

    def _last_block(self, table: Table) -> Block | None:
        """Returns the last block of a table, None if it has none."""
        last = self._lasts.get(table.id)
        if last is not None:  # it may be gone, or another one may have taken its place
            key = layout.block_key(last)
            items = self._engine.scan_index(Tree.BLOCKS, key, key + b"\0", 1)
            found = [layout.decode_block(*item) for item in items]
            last = next((block for block, is_retired in found if not is_retired), None)
        if last is None:
            last = next(reversed(self.blocks(table.name)), None)
        if last is not None:
            self._lasts[table.id] = last
        return last


def _removal_us(replaced: Block) -> int:
    """Returns when the files of a replaced block are removed, according to its latest time."""
    return replaced.max_us + limits.REPLACED_KEPT_US


_NO_HISTORY: Final = History()
_USUAL: Final = streams.Settings()


def _settings(table: Table) -> streams.Settings:
    """Returns the settings for a table's blocks; jobs tables have the defaults."""
    return streams.decode_settings(table.settings) if table.kind is kinds.Kind.STREAM else _USUAL


class Rounds:
    """Rounds of sealing; any thread may ask for one."""

    def __init__(self, engine: Engine, shelf: Shelf, turn: Turn, clock: Clock) -> None:
        self._engine = engine
        self._plans = engine.sealing
        self._shelf = shelf
        self._turn = turn
        self._clock = clock
        self._one = threading.Lock()  # held while a round is under way
        self._rest_us = 0  # after the last failure
        self._rests_until_us = 0  # monotonic
        self._is_stopped = False
        self.blocks = 0  # written since the start
        self.failures = 0  # rounds that failed since the start

    def due_us(self) -> int | None:
        """Returns the wall time when a round is due; None while there is nothing to seal."""
        due_us = self._plans.due_us()
        if due_us is None or self._is_stopped:
            return None
        rest_us = self._rests_until_us - self._clock.monotonic_us()
        return max(due_us, self._clock.wall_us() + rest_us) if rest_us > 0 else due_us

    def round(self) -> None:
        """Seals what is due, and removes blocks that need not be kept.

        Raises:
            Exception: any failure; the next round is due after a delay.
        """
        with self._one:
            self._note_failure(self._round)

    def seal(self, command: SealNow) -> Reply:
        """Seals everything that is durable now; returns the answer to the request."""
        problem = self._problem(command.table) if command.table else None
        if problem is not None:
            return problem
        try:
            with self._one:
                self._note_failure(lambda: self._seal_all(command.table))
        except ClosedError:
            raise
        except (FjordError, OSError) as error:
            return Refusal(code=Code.FAILED, text=f"sealing failed: {error}")
        return Done(master=self._engine.master, seq=self._engine.durable_seq)

    def stop(self) -> None:
        """Ends the current round; the next start seals the same range again."""
        self._is_stopped = True
        self._shelf.stop()

    def join(self) -> None:
        """Returns when no round is running."""
        with self._one:
            pass

    def stats(self) -> dict[str, int]:
        return {"sealed_blocks": self.blocks, "seal_failures": self.failures}

    # -- one round --------------------------------------------------------------------------------

    def _problem(self, name: str) -> Refusal | None:
        """Returns why a table can never be sealed."""
        table = self._engine.tables.get(name)
        if table is None:
            return Refusal(code=Code.NOT_FOUND, text=f"there is no table {name}")
        if history.has_history(table, jobs_too=True):
            return None
        text = f"table {name} is a {table.kind} table without history to seal"
        return Refusal(code=Code.WRONG_KIND, text=text)

    def _note_failure(self, call: Callable[[], None]) -> None:
        self._rests_until_us = 0
        try:
            call()
        except Exception:
            if not self._is_stopped:
                self.failures += 1
                self._rest_us = min(_REST_US_MAX, 2 * self._rest_us or _REST_US_FIRST)
                self._rests_until_us = self._clock.monotonic_us() + self._rest_us
            raise
        self._rest_us = 0

    def _round(self) -> None:
        self._turn(lambda: None)  # only what is durable is planned
        plan = in_turn(self._turn, self._plans.plan_seal)
        if plan is not None:
            self._write(plan)
        if not self._retire() and plan is None:  # it is not retried at once
            self._rests_until_us = self._clock.monotonic_us() + _REST_US_FIRST

    def _seal_all(self, table: str) -> None:
        """Seals plan by plan everything that existed when it began."""
        self._turn(lambda: None)  # only what is durable is planned
        end_seq = self._engine.durable_seq
        plan_now = partial(self._plans.plan_seal, table, now=True)
        while (plan := in_turn(self._turn, plan_now)) is not None:
            self._write(plan)
            if all(one.last >= end_seq for one in plan.ranges):
                break
        self._retire()

    def _write(self, plan: SealPlan) -> None:
        if self._is_stopped:
            raise ClosedError
        blocks = self._shelf.write(self._engine.journal.directory, plan)
        self._turn(lambda: self._plans.finish_seal(plan, blocks))
        self.blocks += len(blocks)

    def _retire(self) -> bool:
        """Removes blocks that need not be kept; returns whether there were any."""
        blocks = in_turn(self._turn, self._plans.plan_retirement)
        if blocks:
            self._shelf.remove(blocks, wipes=self._engine.memory.is_secure)
            self._turn(lambda: self._plans.finish_retirement(blocks))
        return bool(blocks)
