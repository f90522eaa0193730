"""Runs all benchmarks, or the named ones, and prints figures beside their targets."""

from __future__ import annotations

import argparse
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import (
    cache,
    churn,
    commands,
    job_scale,
    jobs,
    kestrel,
    kv,
    memory,
    packing,
    rebuild,
    report,
    spark,
    spool,
    streams,
    typed,
)
from benchmarks.scale import FULL, SMALL, Scale


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Figures that are measured together."""

    shows: str
    run: Callable[[Scale], None]
    needs: tuple[str, ...] = ()  # what a version of Fjord must have to be measured


PARTS: dict[str, Part] = {
    "writes": Part(shows="key/value writes beside Redis", run=kv.run),
    "commands": Part(
        shows="counters, transactions and ranges beside Redis",
        run=commands.run,
        needs=("fjord:Kv.add", "fjord:Kv.range", "fjord:Database.transaction"),
    ),
    "jobs": Part(
        shows="jobs beside Redis streams and beanstalkd",
        run=jobs.run,
        needs=("fjord:Database.jobs",),
    ),
    "job_scale": Part(
        shows="millions of waiting jobs",
        run=job_scale.run,
        needs=("fjord:Database.jobs",),
    ),
    "streams": Part(
        shows="messages beside Redis streams and a plain file, cold blocks, subscribers",
        run=streams.run,
        needs=("fjord:Database.stream", "fjord:Database.seal", "fjord:Database.snapshot"),
    ),
    "typed": Part(
        shows="rows of declared columns beside untyped values of the same size",
        run=typed.run,
        needs=("fjord.declared.rows:Rows",),
    ),
    "spool": Part(
        shows="writes to a spool beside a plain file, and how fast they reach the daemon",
        run=spool.run,
        needs=("fjord:spool",),
    ),
    "kestrel": Part(
        shows="journals and queues of Kestrel, served beside memcached and beanstalkd",
        run=kestrel.run,
        needs=("fjord.kestrel.server:Server",),
    ),
    "spark": Part(
        shows="reads, the sink and streaming, beside Spark's own",
        run=spark.run,
        needs=("fjord:Database.staging", "fjord:Database.span"),
    ),
    "rebuild": Part(shows="rebuilding a lost index", run=rebuild.run),
    "memory": Part(shows="memory with a million values, restart after SIGKILL", run=memory.run),
    "cache": Part(
        shows="reads of more than the cache holds",
        run=cache.run,
        needs=("fjord.limits:VALUE_CACHE_BYTES",),
    ),
    "churn": Part(
        shows="disk use after many overwrites", run=churn.run, needs=("fjord:Database.stats",)
    ),
    "packing": Part(
        shows="rates while the journal is packed",
        run=packing.run,
        needs=("fjord:Database.stats", "fjord.limits:PACK_RATIO"),
    ),
}


def main() -> None:
    asked = _asked()
    report.machine()
    report.console.print(
        "A quick try: it only shows that all parts run; the figures mean nothing."
        if asked.small
        else "Every acknowledgement after an fsync; 100-byte values, and the median of "
        f"{FULL.rounds} rounds, unless stated otherwise."
    )
    for name in asked.parts or PARTS:
        report.console.print(f"\n[bold]{name}[/bold]: {PARTS[name].shows}")
        lacking = [what for what in PARTS[name].needs if not _is_there(what)]
        if lacking:
            report.console.print(f"skipped: this version has no {', '.join(lacking)}")
        else:
            PARTS[name].run(SMALL if asked.small else FULL)


def _asked() -> argparse.Namespace:
    listed = "\n".join(f"  {name:10}{part.shows}" for name, part in PARTS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        epilog=f"parts:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="part", help="only these; all unless given")
    parser.add_argument("--small", action="store_true", help="a quick try of every part")
    asked = parser.parse_args()
    unknown = [name for name in asked.parts if name not in PARTS]
    if unknown:
        parser.error(f"unknown part {', '.join(unknown)}; known are {', '.join(PARTS)}")
    return asked


def _is_there(what: str) -> bool:
    """Returns whether this version of Fjord has it; older ones are measured without it."""
    try:
        pkgutil.resolve_name(what)
    except AttributeError:
        return False
    return True


if __name__ == "__main__":
    main()
