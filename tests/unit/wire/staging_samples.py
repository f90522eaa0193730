"""Commands and replies about staged rows: one of every sort."""

from __future__ import annotations

from fjord.commands import Advance, AskWriter, Command, CommitStages, Committed, Reply, Stage
from tests.unit.wire.job_samples import push
from tests.unit.wire.stream_samples import append
from tests.unit.wire.streams import set_many

LARGEST = 2**64 - 1

STAGES: list[Command] = [
    Stage(rows=append("t", [b"v", b"text"])),
    Stage(rows=push("t", [b"k", b"l"])),
    Stage(rows=set_many("t", [(b"k", 1, b"v"), (b"l", 2, b"w")])),
]

STAGING: list[Command] = [
    CommitStages(table="t", writer="w", batch=0, stages=[]),
    CommitStages(table="longer_name", writer="\u00fc" * 60, batch=2**63, stages=[1, 5, LARGEST]),
    AskWriter(table="t", writer="a query"),
    AskWriter(table="", writer="a spool"),
]

# Those that a batch may hold.
INNER_WRITERS: list[Command] = [
    Advance(writer="a spool", expected=-1, batch=512),
    Advance(writer="\u00fc" * 60, expected=2**63 - 2, batch=2**63 - 1),
    Advance(writer="a spool", expected=0, batch=0),
]

STAGING_REPLIES: list[Reply] = [
    Committed(batch=7, is_new=True, left=3, rows=10, seq=99),
    Committed(batch=0, is_new=False, left=0, rows=0, seq=LARGEST),
    Committed(batch=-1, is_new=False, left=0, rows=0, seq=0),
]
