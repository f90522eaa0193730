"""`fjord table create` and `export`: tables as files declare them."""

from __future__ import annotations

from typing import Annotated

import typer

from fjord.cli import output
from fjord.cli.failing import EXIT_USAGE, explained, tell
from fjord.cli.where import DAEMON, Data, Json, To, database
from fjord.client.declared_tables import Made, check, declaration_of, read_file
from fjord.declared import declaration
from fjord.declared.declaration import Declaration, Draft, Place, Problems
from fjord.errors import DeclarationError, UsageError
from fjord.kinds import Kind


def create(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The table; or give --file.", show_default=False)
    ] = "",
    file: Annotated[
        str, typer.Option(help="XML, or TOML if its name ends so, that declares tables.")
    ] = "",
    model: Annotated[
        str,
        typer.Option(help=f"One of {', '.join(declaration.MODELS)}.", show_default=Kind.JOBS.value),
    ] = "",
    column: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:TYPE[:required]", help="A column; once for each."),
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column of the key; once for each."),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting; once for each."),
    ] = None,
    change: Annotated[
        bool,
        typer.Option("--change", help="What has a period and differs begins a new generation."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be made.")
    ] = False,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Makes tables that are not there; those that are must be as they are declared.

    Example: fjord table create --file tables.xml --dry-run

    Example: fjord table create pages --model jobs --column uri:string:required --column
    depth:uint8 --key uri --set lease=60
    """
    with explained():
        parts = (model, column, key, set_)
        if bool(name) == bool(file) or (file and any(parts)):
            raise UsageError("give --file, or a name with --model, --column, --key and --set")
        try:
            if file:
                declared = read_file(file)
            else:
                declared = _declared(name, model or Kind.JOBS, column or [], key or [], set_ or [])
            with database(to, data, read_only=dry_run) as db:
                made = db.create_tables(declared, change=change, dry_run=dry_run)
            _print(made, dry_run=dry_run, as_json=as_json)
        except DeclarationError as error:
            for problem in error.problems:
                tell(f"fjord: {problem}", style="red")
            raise typer.Exit(EXIT_USAGE) from error


def export(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Tables; all unless given.")
    ] = None,
    to: To = DAEMON,
    data: Data = "",
) -> None:
    """Prints the XML that declares tables as they are.

    Example: fjord table export pages > tables.xml
    """
    from fjord.declared import xml

    with explained(), database(to, data, read_only=True) as db:
        tables = [db.table(name) for name in dict.fromkeys(names)] if names else db.tables()
        typer.echo(xml.write(map(declaration_of, tables)), nl=False)


def _print(made: list[Made], *, dry_run: bool, as_json: bool) -> None:
    for one in made:
        if as_json:
            output.print_json(one._asdict())
        else:
            would = "would be " if dry_run and one.outcome != "same" else ""
            output.print_line(one.name, one.model, f"{would}{one.outcome}")


def _declared(
    name: str, model: str, columns: list[str], key: list[str], settings: list[str]
) -> list[Declaration]:
    """Returns what options declare, checked like a file."""
    draft = Draft(place=Place("command line"), name=name, model=model, key=key)
    problems = Problems()
    for text in columns:
        place = Place("--column", name=text)
        parts = text.split(":")
        if len(parts) not in (2, 3) or parts[2:] not in ([], ["required"]):
            problems.add(place, "a column is NAME:TYPE or NAME:TYPE:required")
        else:
            draft.columns.append((place, parts[0], parts[1], len(parts) == 3))
    for text in settings:
        setting, is_given, value = text.partition("=")
        place = Place("--set", name=text)
        if is_given:
            draft.settings.append((place, setting, declaration.scalar(value)))
        else:
            problems.add(place, "a setting is NAME=VALUE")
    found = declaration.checked([draft], problems)
    check(found, problems)
    return found
