"""`fjord jobs import` and `fjord jobs export`: from a journal table in SQL to jobs, and back."""

from __future__ import annotations

from typing import Annotated

import typer

from fjord.cli.arguments import DAEMON, Data, Json, TableName, To, database
from fjord.cli.output import EXIT_ERROR, explained
from fjord.errors import UsageError
from fjord.sql.writing import Dialect


def import_(
    table: TableName,
    mysql_dump: Annotated[
        str,
        typer.Option(metavar="FILE", help="A mysqldump; .gz is unpacked, - reads standard input."),
    ] = "",
    sql: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="A database: mysql://, mariadb:// or postgresql://user:pass@host/db.",
        ),
    ] = "",
    sql_table: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The table in SQL.",
            show_default="journal, or that of a dump that has its columns",
        ),
    ] = "",
    now: Annotated[
        bool,
        typer.Option("--now", help="Do not wait 24 hours for who has begun with a row."),
    ] = False,
    with_value: Annotated[
        bool, typer.Option("--with-value", help="Read a column `value` with JSON in it.")
    ] = False,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Pushes the rows of a journal table of MySQL, MariaDB or PostgreSQL as jobs.

    The table has the columns domain, priority, key_start_date, uri and status; others are told and
    left out. Bad rows are told with their lines, or with their ids, and the rest is imported; the
    exit code is 1 then. Jobs merge with those that wait, so it may be repeated.

    Example: fjord jobs import pages --mysql-dump snaplist.sql.gz

    Example: fjord jobs import pages --sql mysql://snap:secret@127.0.0.1/snaplist
    """
    from fjord.cli import jobs_import

    with explained():
        if bool(mysql_dump) == bool(sql):
            raise UsageError("give either --mysql-dump with a file, or --sql with an address")
        options = jobs_import.Options(
            table=table,
            mysql_dump=mysql_dump,
            sql=sql,
            sql_table=sql_table,
            is_now=now,
            has_value=with_value,
        )
        is_good = jobs_import.run(options, lambda: database(to, data), as_json=as_json)
    if not is_good:
        raise typer.Exit(EXIT_ERROR)


def export(
    table: TableName,
    as_csv: Annotated[bool, typer.Option("--csv", help="Write CSV, as RFC 4180 has it.")] = False,
    as_sql: Annotated[
        bool, typer.Option("--sql", help="Write INSERT statements; this is usual.")
    ] = False,
    out: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="A file that is not there yet.", show_default="standard output"
        ),
    ] = "",
    sql_table: Annotated[str, typer.Option(metavar="NAME", help="The table in SQL.")] = "journal",
    with_create: Annotated[
        Dialect | None,
        typer.Option("--with-create", help="Make the table first, for one of these."),
    ] = None,
    with_value: Annotated[
        bool, typer.Option("--with-value", help="Add a column `value` with JSON in it.")
    ] = False,
    to: To = DAEMON,
    data: Data = "",
    as_json: Json = False,
) -> None:
    """Writes all jobs of a table that wait or are taken as rows of a journal table.

    The INSERT statements are for MySQL, MariaDB and PostgreSQL. The table stays as it is. Exit code
    1 if some jobs cannot be rows, or if somebody works on the table meanwhile.

    Example: fjord jobs export pages --with-create mysql --out pages.sql

    Example: fjord jobs export pages --csv > pages.csv
    """
    from fjord.cli import jobs_export

    with explained():
        if as_csv and (as_sql or with_create):
            raise UsageError("--csv is rows alone; give it without --sql and --with-create")
        if as_json and not out:
            raise UsageError("--json tells what was done; give --out FILE for the rows")
        options = jobs_export.Options(
            table=table,
            is_csv=as_csv,
            out=out,
            sql_table=sql_table,
            dialect=with_create,
            has_value=with_value,
        )
        is_whole = jobs_export.run(
            options, lambda: database(to, data, read_only=True), as_json=as_json
        )
    if not is_whole:
        raise typer.Exit(EXIT_ERROR)
