"""`fjord table`: which tables there are, making some and taking one away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated

import typer

from fjord.cli import output, table_create
from fjord.cli.failing import explained, tell
from fjord.cli.where import DAEMON, Data, Json, To, database
from fjord.client.database import Database
from fjord.client.declared_tables import declaration_of
from fjord.client.job_generations import Generation
from fjord.client.node_calls import TableInfo
from fjord.errors import FjordError
from fjord.kinds import Kind

app = typer.Typer(
    name="table", help="Makes, lists, describes and drops tables.", no_args_is_help=True
)
app.command("create")(table_create.create)
app.command("export")(table_create.export)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The table.", show_default=False)]


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
        table = db.table(name)
        counts = _count(db, name, table.kind) if count else {}
        if as_json:
            output.print_json(_describe(table) | counts)
        else:
            rows = [(key, str(value)) for key, value in (_describe_line(table) | counts).items()]
            rows += (("column", _column_line(one)) for one in _columns(table))
            output.print_rows(("what", "value"), rows, as_json=False)


@app.command("generations")
def generations_(name: Name, to: To = DAEMON, data: Data = "", as_json: Json = False) -> None:
    """Lists the generations of a jobs table with a period; jobs are pushed to the last one.

    Example: fjord table generations pages
    """
    with explained(), database(to, data, read_only=True) as db:
        db.table(name)  # one that is not there is an error
        listed = db.jobs(name).generations()
        if not listed:
            tell(f"table {name} has no period, and so it has no generations")
        if as_json:
            for one in listed:
                output.print_json(asdict(one) | {"began_at": output.date(one.began_at)})
            return
        rows = ([str(cell) for cell in _generation_line(one)] for one in listed)
        output.print_rows(_GENERATION, rows, as_json=False)


_GENERATION = ("number", "began", "schema", "jobs", "state")


def _generation_line(one: Generation) -> tuple[object, ...]:
    state = "current" if one.is_current else "drains"
    return one.number, output.date(one.began_at), one.schema, one.jobs, state


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
    if kind == Kind.JOBS:
        return db.jobs(name).count()._asdict()
    if kind == Kind.STREAM:
        stream = db.stream(name)
        return {"subscribers": len(stream.subscribers()), "blocks": len(stream.blocks())}
    return {"keys": sum(1 for _ in db.kv(name).keys(prefix=""))}


def _describe(table: TableInfo) -> dict[str, object]:
    found: dict[str, object] = {
        "name": table.name,
        "kind": table.kind,
        "id": table.id,
        "settings": table.settings.decode(errors="backslashreplace"),
    }
    columns = _columns(table)
    return found | {"columns": columns} if columns else found


def _describe_line(table: TableInfo) -> dict[str, object]:
    """Returns the same for people: columns have lines of their own."""
    found = _describe(table)
    if found.pop("columns", None):
        settings = declaration_of(table).settings
        found["settings"] = ", ".join(f"{name}={output.shown(settings[name])}" for name in settings)
    return found


def _columns(table: TableInfo) -> list[dict[str, object]]:
    try:
        declared = declaration_of(table)
    except FjordError:
        return []  # of a later version; the settings are shown as they are
    return [
        {
            "name": one.name,
            "type": one.type,
            "required": one.required,
            "key": one.name in declared.key,
        }
        for one in declared.columns
    ]


def _column_line(column: Mapping[str, object]) -> str:
    marks = [mark for mark in ("required", "key") if column[mark]]
    return " ".join([str(column["name"]), str(column["type"]), *marks])
