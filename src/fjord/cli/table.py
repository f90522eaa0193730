"""`fjord table`: which tables there are, and taking one away."""

from __future__ import annotations

from typing import Annotated

import typer

from fjord.cli import output
from fjord.cli.failing import explained
from fjord.cli.where import DAEMON, Data, Json, To, database
from fjord.client.database import Database
from fjord.client.node_calls import TableInfo
from fjord.errors import FjordError

app = typer.Typer(name="table", help="Lists, describes and drops tables.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="The table.", show_default=False)]


@app.command("list")
def list_(to: To = DAEMON, data: Data = "", as_json: Json = False) -> None:
    """Lists all tables by name.

    Example: fjord table list
    """
    with explained(), database(to, data, read_only=True) as db:
        tables = db.tables()
        if as_json:
            for one in tables:
                output.print_json(_describe(one))
            return
        rows = ((one.name, one.kind, str(one.id)) for one in tables)
        output.print_rows(("name", "kind", "id"), rows, as_json=False)


@app.command()
def describe(
    name: Name,
    count: Annotated[bool, typer.Option("--count", help="Also count what is in it.")] = False,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Shows what is known of a table; exit code 1 if there is none.

    Example: fjord table describe settings --count
    """
    with explained(), database(to, data, read_only=True) as db:
        what = _describe(db.table(name))
        if count:
            what |= _count(db, name, str(what["kind"]))
        if as_json:
            output.print_json(what)
        else:
            rows = ((key, str(value)) for key, value in what.items())
            output.print_rows(("what", "value"), rows, as_json=False)


@app.command()
def drop(
    name: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Takes a table away with all that is in it; asks for its name first.

    Example: fjord table drop old-settings

    Example: fjord table drop old-settings --yes
    """
    with explained(), database(to, data) as db:
        db.table(name)  # one that is not there is not asked about
        if not yes:
            typed = typer.prompt(f"All of {name} will be gone. Type its name", err=True)
            if typed != name:
                raise FjordError(f"that is not {name}; nothing was dropped")
        db.drop(name)
        if as_json:
            output.print_json({"dropped": name})


def _count(db: Database, name: str, kind: str) -> dict[str, int]:
    if kind == "jobs":
        return db.jobs(name).count()._asdict()
    if kind == "stream":
        stream = db.stream(name)
        return {"subscribers": len(stream.subscribers()), "blocks": len(stream.blocks())}
    return {"keys": sum(1 for _ in db.kv(name).keys(prefix=""))}


def _describe(table: TableInfo) -> dict[str, object]:
    return {
        "name": table.name,
        "kind": table.kind,
        "id": table.id,
        "settings": table.settings.decode(errors="backslashreplace"),
    }
