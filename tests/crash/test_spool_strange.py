"""Spool files that no writer of ours has written: strange records, and bytes that have changed.

Whatever is there, the forwarder goes on, and every record that is whole arrives once.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Final

import fjord
from fjord.client.spool import files
from fjord.client.spool.files import line_of
from fjord.clock import SystemClock
from tests.crash.spool_world import PERIOD_US, SpoolInMemory, Tables, check, forward, write_all
from tests.crash.tracing import noted

SEEDS: Final = range(12)
GOOD: Final = 40  # records of a file


def good_lines(tables: Tables) -> list[bytes]:
    spool = SpoolInMemory()
    write_all(spool, tables, range(GOOD))
    return spool.lines


def samples(tables: Tables) -> list[bytes]:
    """Returns a record of each kind."""
    spool = SpoolInMemory()
    write_all(spool, tables, range(8))
    spool.kv(tables.kv).delete("a")
    spool.kv(tables.kv).set_many({"a": 1, "b": 2}, ttl=5)
    spool.kv(tables.kv).delete_many(["a", "b"])
    spool.jobs(tables.jobs).push("a", domain="b", priority=3, delay=5)
    spool.jobs(tables.jobs).push_many(keys=["a", "b"], delay=3)
    return spool.records


def changed(data: bytes, dice: random.Random) -> bytes:
    """Returns bytes that are nearly the same; most often it is their beginning that differs."""
    found = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 4])):
        at = dice.randrange(min(len(found), dice.choice([8, 32, 64, len(data)])) or 1)
        what = dice.randrange(5)
        if what < 3:
            found[at : at + 1] = bytes([dice.choice([0, 1, 255, dice.randrange(256)])])
        elif what == 3:
            del found[at:]
        else:
            found[at:at] = dice.randbytes(dice.randrange(1, 9))
    return bytes(found)


def put(directory: Path, lines: list[bytes]) -> Path:
    """Makes a spool of one file."""
    directory.mkdir()
    now_us = SystemClock().wall_us()
    path = directory / files.name_of(files.slot_of(now_us, PERIOD_US))
    path.write_bytes(files.encode_header(files.new_header(now_us)) + b"".join(lines))
    return path


def test_records_that_make_no_sense_are_set_aside_and_the_rest_goes_on(
    daemon: str, tmp_path: Path
) -> None:
    refused = set_aside = 0
    for seed in SEEDS:
        dice, tables = random.Random(seed), Tables()
        strange = samples(Tables())
        lines = []
        for line in good_lines(tables):
            lines.append(line)
            for _ in range(dice.randrange(3)):
                lines.append(line_of(changed(dice.choice(strange), dice)))  # noqa: PERF401
        put(tmp_path / str(seed), lines)
        with noted(f"seed {seed}"), fjord.connect(daemon) as db:
            progress = forward(tmp_path / str(seed), daemon)
            check(db, tables, range(GOOD))
        assert progress.retries == 0
        refused += progress.refused.total()
        set_aside += progress.set_aside.total()
    assert min(refused, set_aside) > 3 * len(SEEDS)


def test_bytes_that_have_changed_cost_no_record_but_their_own(daemon: str, tmp_path: Path) -> None:
    for seed in SEEDS:
        dice, tables = random.Random(seed), Tables()
        lines = good_lines(tables)
        hit = set(dice.sample(range(GOOD), 10))
        for number in hit:
            line = lines[number]
            while changed_line := changed(line, dice):
                if changed_line.rstrip(b"\n") != line.rstrip(b"\n"):
                    break
            lines[number] = changed_line
        put(tmp_path / str(seed), lines)
        with noted(f"seed {seed}"), fjord.connect(daemon) as db:
            progress = forward(tmp_path / str(seed), daemon)
            # What was put before or behind a line is no part of it, so that it may be whole.
            check(db, tables, set(range(GOOD)) - hit, hit)
        assert progress.set_aside.total() > 0
