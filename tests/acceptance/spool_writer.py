"""A writer of a spool in a process of its own: so many records, from a number on.

python -m tests.acceptance.spool_writer DIRECTORY TABLES FIRST COUNT PERIOD
"""

from __future__ import annotations

import sys

import fjord
from tests.crash.spool_world import Tables, mostly_single, write_all


def main() -> None:
    directory, name, first, count, period = sys.argv[1:]
    with fjord.spool(directory, period=float(period)) as spool:
        write_all(spool, Tables(name), mostly_single(int(first), int(count)))


if __name__ == "__main__":
    main()
