"""`fjord stats`: the numbers by which a node is watched."""

from __future__ import annotations

from fjord.cli import output
from fjord.cli.failing import explained, tell
from fjord.cli.where import DAEMON, Data, Json, To, database
from fjord.client.database import Database
from fjord.kinds import Kind

# Tables with dead jobs that are named.
_NAMED = 10


def stats(to: To = DAEMON, data: Data = "", as_json: Json = False) -> None:
    """Prints the numbers by which a node is watched; tells of dead jobs on standard error.

    Example: fjord stats

    Example: fjord stats --json
    """
    with explained(), database(to, data, read_only=True) as db:
        numbers = db.stats()
        if as_json:
            output.print_json(numbers)
        else:
            _tell_of_the_dead(db, numbers, f" --data {data}" if data else _address(to))
            rows = ((name, str(number)) for name, number in numbers.items())
            output.print_rows(("name", "number"), rows, as_json=False)


def _tell_of_the_dead(db: Database, numbers: dict[str, int], where: str) -> None:
    """Says which tables have dead jobs, and how to look at them."""
    if numbers.get("jobs_dead") == 0:
        return  # of a directory beside its writer the sum is not known
    named = 0
    for table in db.tables():
        dead = db.jobs(table.name).count().dead if table.kind == Kind.JOBS else 0
        if dead and named < _NAMED:
            look = f"fjord jobs dead {table.name}{where}"
            count = output.counted(dead, "dead job")
            tell(f"alert: {count} in {table.name}; see: {look}", style="bold red")
        named += dead > 0
    if named > _NAMED:
        more = output.counted(named - _NAMED, "more table")
        tell(f"alert: dead jobs in {more}", style="bold red")


def _address(to: str) -> str:
    return "" if to == DAEMON else f" --to {to}"
