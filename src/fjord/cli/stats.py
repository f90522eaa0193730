"""`fjord stats`: the numbers by which a node is watched."""

from __future__ import annotations

from fjord.cli import output
from fjord.cli.failing import explained
from fjord.cli.where import DAEMON, Data, Json, To, database


def stats(to: To = DAEMON, data: Data = "", as_json: Json = False) -> None:
    """Prints the numbers by which a node is watched.

    Example: fjord stats

    Example: fjord stats --json
    """
    with explained(), database(to, data, read_only=True) as db:
        numbers = db.stats()
        if as_json:
            output.print_json(numbers)
        else:
            rows = ((name, str(number)) for name, number in numbers.items())
            output.print_rows(("name", "number"), rows, as_json=False)
