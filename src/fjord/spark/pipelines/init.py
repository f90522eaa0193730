"""A project for Spark's declarative pipelines: ingest, latest and a report, from a template.

The template is the folder `fjord/spark/template`: a complete project, whose texts have `${names}`
for the parts that differ.  Its Python files have none: they read the differing parts from the
settings of the pipeline, so that they can be checked and formatted like all others.
"""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from fjord.errors import FjordError, NotFoundError, UnavailableError
from fjord.kinds import Kind
from fjord.spark.options import Location
from fjord.spark.pipelines.report import Report

_TEMPLATE: Final = resources.files("fjord.spark") / "template"
# Under its real name, Git would apply this file to Fjord's own sources.
_NAMES: Final = {"gitignore": ".gitignore"}
# Files without names to fill in.
_AS_THEY_ARE: Final = (".py", "run")
# What Spark writes into a project.
_STORAGE, _TABLES = "storage", "tables"
# The names of the other datasets of a project.
_VIEWS: Final = ("latest", "report")


def init(directory: str, location: Location, *, table: str, force: bool = False) -> Report:
    """Writes a project for `spark-pipelines`, without running it.

    The table is checked if possible: a project may be written before the table exists.

    Args:
        directory: is created, or is empty.
        location: where the data is.
        table: which table the pipeline reads.
        force: the directory may have files; those of the template are overwritten.

    Raises:
        FjordError: if the directory has files, and force was not given, or cannot be written; or if
            it is a jobs table.
    """
    project = Path(directory).absolute()
    _check(project, force=force)
    kind = _kind(location, table)
    names = _names(project, location, table)
    try:
        written = _fill(project, names)
    except OSError as error:
        raise FjordError(f"{project} cannot be written: {error}") from error
    return Report(
        job="init",
        figures={
            "project": str(project),
            "reads": f"{table} of {location}",
            "kind": kind,
            "streaming_table": dataset(table),
            "files": len(written),
            "run_it_with": str(project / "run"),
        },
        rows=[{"file": name} for name in written],
    )


def _check(project: Path, *, force: bool) -> None:
    if project.exists() and not project.is_dir():
        raise FjordError(f"{project} is a file; name a directory for the project")
    if not force and project.is_dir() and any(project.iterdir()):
        raise FjordError(
            f"{project} is not empty; name another directory, or give --force to write the files "
            "of the project again"
        )


def _kind(location: Location, table: str) -> str:
    """Returns the kind of the table, or why it is unknown."""
    if location.path and not Path(location.path).is_dir():
        return "not known, there is no such directory yet"
    try:
        with location.open() as database:
            found = database.table(table).kind
    except NotFoundError:
        return "not known, there is no such table yet"
    except UnavailableError:
        return "not known, no daemon answers"
    if found == Kind.JOBS:
        raise FjordError(
            f"{table} is a jobs table, and jobs have no current values; name a stream or a "
            "key/value table, or report on jobs with `fjord pipeline lifecycle`"
        )
    return found


def dataset(table: str) -> str:
    """Returns the name of the streaming table: that of the table, as SQL takes it unquoted."""
    name = re.sub(r"[^a-z0-9]+", "_", table.lower()).strip("_")
    if not name or name[0].isdigit() or name in _VIEWS:
        name = f"table_{name}"
    return name


def _names(project: Path, location: Location, table: str) -> dict[str, str]:
    """Returns the values of the names in the template; a string in YAML is as in JSON."""
    ((place, where),) = location.options.items()
    storage = project / _STORAGE
    return {
        "name": json.dumps(project.name),
        "title": project.name,
        "storage": json.dumps(storage.as_uri()),
        "place": place,
        "where": json.dumps(where),
        "location": str(location),
        "table": json.dumps(table),
        "table_name": table,
        "dataset": json.dumps(dataset(table)),
        "dataset_name": dataset(table),
        "metastore": f"jdbc:derby:;databaseName={storage / 'metastore'};create=true",
        "tables": (project / _TABLES).as_uri(),
        "derby_log": str(storage / "derby.log"),
    }


def _fill(project: Path, names: dict[str, str]) -> list[str]:
    """Writes the files of a project; returns their paths in it."""
    written = []
    for name, source in _files(_TEMPLATE):
        text = source.read_text(encoding="utf-8")
        if not name.endswith(_AS_THEY_ARE):
            text = string.Template(text).substitute(names)
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        if text.startswith("#!"):
            path.chmod(path.stat().st_mode | 0o111)  # a wheel may not keep this
        written.append(name)
    (project / _STORAGE).mkdir(exist_ok=True)
    return written


def _files(folder: Traversable, above: str = "") -> Iterator[tuple[str, Traversable]]:
    """Yields the files of the template, with their paths in a project."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name == "__pycache__":
            continue
        name = above + _NAMES.get(entry.name, entry.name)
        if entry.is_dir():
            yield from _files(entry, f"{name}/")
        else:
            yield name, entry
