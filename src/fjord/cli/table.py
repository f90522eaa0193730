"""`fjord table`: creates, lists, describes and drops tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated

import typer

from fjord.cli import output
from fjord.cli.arguments import DAEMON, Data, Node, To, argument, noun, option, verb
from fjord.cli.output import EXIT_USAGE, tell
from fjord.client.blocking.database import Database
from fjord.client.declared_tables import TableInfo, creations, declaration_of, read_file
from fjord.client.jobs.records import Generation
from fjord.declared import declaration
from fjord.declared.declaration import Declaration, Draft, Location, Problems
from fjord.errors import DeclarationError, FjordError, UsageError
from fjord.kinds import Kind
from fjord.text import value_text

app = noun("table", "Creates, lists, describes and drops tables.")

Name = Annotated[str, argument("NAME", "The table.")]


@verb(app)
def create(
    node: Node,
    name: Annotated[str, argument("NAME", "The table; or give --file.")] = "",
    file: Annotated[str, option("An XML file that declares tables.")] = "",
    model: Annotated[
        str, option(f"One of {', '.join(declaration.MODELS)}.", shown=Kind.JOBS.value)
    ] = "",
    column: Annotated[
        list[str] | None, option("A column; may be repeated.", metavar="NAME:TYPE[:required]")
    ] = None,
    key: Annotated[
        list[str] | None, option("A column of the key; may be repeated.", metavar="COLUMN")
    ] = None,
    set_: Annotated[
        list[str] | None, option("A setting; may be repeated.", "--set", metavar="NAME=VALUE")
    ] = None,
    change: Annotated[
        bool, option("Begin a new generation of a table with a period that differs.", "--change")
    ] = False,
    dry_run: Annotated[bool, option("Only print what would be created.", "--dry-run")] = False,
) -> None:
    """Creates tables; existing ones must match their declarations.

    Example: fjord table create --file tables.xml --dry-run

    Example: fjord table create pages --model jobs --column uri:string:required --column
    depth:uint8 --key uri --set lease=60

    Example: fjord table create events --model stream --set mode=latest
    """
    parts = (model, column, key, set_)
    if bool(name) == bool(file) or (file and any(parts)):
        raise UsageError("give --file, or a name with --model, --column, --key and --set")
    try:
        if file:
            declared = read_file(file)
        else:
            declared = _declared(name, model or Kind.JOBS, column or [], key or [], set_ or [])
        with node.open(read_only=dry_run) as db:
            made = db.create_tables(declared, change=change, dry_run=dry_run)
        for one in made:
            would = "would be " if dry_run and one.outcome != "same" else ""
            cells = one.name, one.model, f"{would}{one.outcome}"
            output.print_one(one._asdict(), *cells, as_json=node.as_json)
    except DeclarationError as error:
        for problem in error.problems:
            tell(f"fjord: {problem}", style="red")
        raise typer.Exit(EXIT_USAGE) from error


@verb(app)
def export(
    names: Annotated[list[str] | None, argument("NAME", "Tables.", shown="all")] = None,
    to: To = DAEMON,
    data: Data = "",
) -> None:
    """Prints the XML declarations of tables.

    Example: fjord table export pages > tables.xml
    """
    from fjord.declared import xml

    with Node(to=to, data=data).open(read_only=True) as db:
        tables = [db.table(name) for name in dict.fromkeys(names)] if names else db.tables()
        typer.echo(xml.write(map(declaration_of, tables)), nl=False)


def _declared(
    name: str, model: str, columns: list[str], key: list[str], settings: list[str]
) -> list[Declaration]:
    """Returns the declaration that the options give, checked like a file."""
    draft = Draft(place=Location("command line"), name=name, model=model, key=key)
    problems = Problems()
    for text in columns:
        place = Location("--column", name=text)
        parts = text.split(":")
        if len(parts) not in (2, 3) or parts[2:] not in ([], ["required"]):
            problems.add(place, "write a column as NAME:TYPE or NAME:TYPE:required")
        else:
            draft.columns.append((place, parts[0], parts[1], len(parts) == 3))
    for text in settings:
        setting, is_given, value = text.partition("=")
        place = Location("--set", name=text)
        if is_given:
            draft.settings.append((place, setting, declaration.scalar(value)))
        else:
            problems.add(place, "write a setting as NAME=VALUE")
    found = declaration.checked([draft], problems)
    creations(found, problems)
    return found


@verb(app, "list")
def list_(node: Node) -> None:
    """Lists all tables by name.

    Example: fjord table list
    """
    with node.open(read_only=True) as db:
        node.print_all(
            db.tables(),
            _describe,
            ("name", "kind", "id"),
            lambda one: (one.name, one.kind, str(one.id)),
        )


@verb(app)
def describe(
    node: Node,
    name: Name,
    count: Annotated[bool, option("Also count its contents.", "--count")] = False,
) -> None:
    """Shows the settings and columns of a table; exit code 1 if there is no such table.

    Example: fjord table describe settings --count
    """
    with node.open(read_only=True) as db:
        table = db.table(name)
        counts = _count(db, name, table.kind) if count else {}
        if node.as_json:
            output.print_json(_describe(table) | counts)
        else:
            rows = [(key, str(value)) for key, value in (_describe_line(table) | counts).items()]
            rows += (("column", _column_line(one)) for one in _columns(table))
            output.print_rows(("what", "value"), rows)


@verb(app, "generations")
def generations_(node: Node, name: Name) -> None:
    """Lists the generations of a jobs table with a period; jobs are pushed to the last one.

    Example: fjord table generations pages
    """
    with node.open(read_only=True) as db:
        db.table(name)  # raises if it does not exist
        listed = db.jobs(name).generations()
        if not listed:
            tell(f"table {name} has no period, so it has no generations")
        node.print_all(
            listed,
            lambda one: asdict(one) | {"began_at": output.date(one.began_at)},
            ("number", "began", "schema", "jobs", "state"),
            _generation_cells,
        )


def _generation_cells(one: Generation) -> tuple[str, ...]:
    state = "current" if one.is_current else "drains"
    return str(one.number), str(output.date(one.began_at)), str(one.schema), str(one.jobs), state


@verb(app)
def drop(
    node: Node, name: Name, yes: Annotated[bool, option("Do not ask.", "--yes")] = False
) -> None:
    """Deletes a table with all its data; asks for its name first.

    Example: fjord table drop old-settings

    Example: fjord table drop old-settings --yes
    """
    with node.open() as db:
        db.table(name)  # raises if it does not exist
        if not yes:
            typed = typer.prompt(f"All data of {name} will be deleted. Type its name", err=True)
            if typed != name:
                raise FjordError(f"that is not {name}; nothing was dropped")
        db.drop(name)
        node.done(dropped=name)


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
    """Returns the same without columns, which are printed as lines."""
    found = _describe(table)
    if found.pop("columns", None):
        settings = declaration_of(table).settings
        found["settings"] = ", ".join(f"{name}={value_text(settings[name])}" for name in settings)
    return found


def _columns(table: TableInfo) -> list[dict[str, object]]:
    try:
        declared = declaration_of(table)
    except FjordError:
        return []  # a later version's; the settings are shown raw
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
