"""`fjord jobs import` and `fjord jobs export` without a database: files, good and bad ones."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

import fjord
from fjord.client.blocking.jobs import Jobs
from fjord.commands import JobPage
from fjord.jobs import State
from fjord.values import Value
from tests.acceptance.shell import run
from tests.acceptance.sql_rows import COLUMNS, HOUR_US, NOW_US, jobs

pytestmark = pytest.mark.usefixtures("empty")


def dump(count: int, *more: str) -> bytes:
    """Returns a dump with so many good rows, and more of them."""
    lines = [f"('d',1,{NOW_US - HOUR_US},'http://x/{number}',NULL)" for number in range(count)]
    values = ",\n".join([*lines, *more])
    return f"INSERT INTO journal ({COLUMNS}) VALUES\n{values};\n".encode()


# -- exporting ------------------------------------------------------------------------------------


@pytest.mark.req("FJ-17")
def test_values_and_taken_jobs_are_exported(
    db: fjord.Database, to: tuple[str, str], tmp_path: Path
) -> None:
    pages = db.jobs("pages")
    given: dict[str, Value] = {
        "bytes": b"\0\xff'",
        "text": "it's \\",
        "number": 5,
        "none": None,
        "true": True,
    }
    pages.push_many(keys=list(given), values=list(given.values()))
    taken = pages.next(lease=600)[0]
    path = tmp_path / "pages.sql"
    done = run("jobs", "export", "pages", "--with-value", "--out", str(path), *to)
    assert done.exit_code == 0, done.stderr
    back = ("--mysql-dump", str(path), "--with-value")
    assert run("jobs", "import", "back", *back, *to).exit_code == 0
    found = {job.key: job for job in db.jobs("back").peek(10)}
    assert {key: job.value for key, job in found.items()} == given
    assert taken.lease_until is not None
    again_in = found[taken.key].process_at - taken.lease_until
    assert abs(again_in.total_seconds()) < 1
    there = run("jobs", "export", "pages", "--out", str(path), *to)
    assert (there.exit_code, "already exists" in there.stderr) == (2, True)


@pytest.mark.req("FJ-17")
def test_csv_is_exported(db: fjord.Database, to: tuple[str, str]) -> None:
    db.jobs("pages").push_many(
        keys=['http://a/,"x"\n', "http://b/"], domain=["d", None], priority=[1, 2]
    )
    done = run("jobs", "export", "pages", "--csv", *to)
    assert done.exit_code == 0
    head, *found = csv.reader(io.StringIO(done.stdout, newline=""), strict=True)
    assert head == ["id", "domain", "priority", "key_start_date", "uri", "status"]
    assert [(row[0], row[1], row[2], row[4], row[5]) for row in found] == [
        ("1", "d", "1", 'http://a/,"x"\n', ""),
        ("2", "b", "2", "http://b/", ""),
    ]


def test_jobs_that_no_table_holds_are_told(db: fjord.Database, to: tuple[str, str]) -> None:
    db.jobs("pages").push_many(keys=[b"\xff", b"fine"])
    done = run("jobs", "export", "pages", "--csv", *to)
    assert done.exit_code == 1
    assert "is left out: its key or domain is not UTF-8" in done.stderr
    assert "1 job exported, 1 left out" in done.stderr
    assert "fine" in done.stdout


def test_a_table_that_changes_meanwhile_is_told(
    db: fjord.Database, to: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    db.jobs("pages").push("first")
    pages = Jobs.pages

    def pages_while_somebody_pushes(read: Jobs, state: State) -> Iterator[JobPage]:
        db.jobs("pages").push(f"pushed {state.name}")
        yield from pages(read, state)

    monkeypatch.setattr(Jobs, "pages", pages_while_somebody_pushes)
    done = run("jobs", "export", "pages", "--csv", *to)
    assert (done.exit_code, "changed while it was read" in done.stderr) == (1, True)


def test_a_file_that_was_begun_is_gone_if_the_export_fails(
    db: fjord.Database, to: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.jobs("pages").push("first")

    def pages_of_a_daemon_that_is_gone(*_: object) -> Iterator[JobPage]:
        raise fjord.UnavailableError("it is gone")

    monkeypatch.setattr(Jobs, "pages", pages_of_a_daemon_that_is_gone)
    path = tmp_path / "pages.sql"
    done = run("jobs", "export", "pages", "--out", str(path), *to)
    assert (done.exit_code, "it is gone" in done.stderr, path.exists()) == (1, True, False)
    nowhere = run("jobs", "export", "pages", "--out", str(tmp_path / "no" / "file"), *to)
    assert (nowhere.exit_code, "cannot be written" in nowhere.stderr) == (2, True)


def test_a_directory_is_imported_to_and_exported_from(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    done = run("jobs", "import", "pages", "--mysql-dump", "-", *data, text=dump(2))
    assert done.exit_code == 0, done.stderr
    found = run("jobs", "export", "pages", *data)
    assert (found.exit_code, found.stdout.count("http://x/")) == (0, 2)
    none = run("jobs", "export", "nothing", *data)
    assert (none.exit_code, "nothing" in none.stderr) == (1, True)


# -- dumps, and what is none ----------------------------------------------------------------------


def test_bad_rows_are_told_with_their_lines_and_the_rest_is_imported(
    db: fjord.Database, to: tuple[str, str]
) -> None:
    text = dump(
        2, f"('d',256,{NOW_US},'a',NULL)", f"('d',1,{NOW_US},'b',NULL,7)", "(NOW(),1,2,'c',NULL)"
    )
    text += dump(1, f"('d',1,{NOW_US},'last',NULL)")
    done = run("jobs", "import", "pages", "--mysql-dump", "-", *to, text=text)
    assert done.exit_code == 1
    assert done.stderr.splitlines() == [
        "line 4: priority is 0 to 255, not 256",
        "line 5: it has 6 values for 5 columns",
        "line 6: key_start_date 2 is no date in microseconds",
        "4 rows of journal imported, 3 bad rows",
    ]
    assert [job[0] for job in jobs(db)] == ["http://x/0", "http://x/1", "last"]


def test_a_packed_dump_is_unpacked(db: fjord.Database, to: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "dump.sql.gz"
    path.write_bytes(gzip.compress(dump(20_000)))
    done = run("jobs", "import", "pages", "--mysql-dump", str(path), *to)
    assert (done.exit_code, db.jobs("pages").count().waiting) == (0, 20_000)
    path.write_bytes(path.read_bytes()[:-1000])
    cut = run("jobs", "import", "cut", "--mysql-dump", str(path), *to)
    assert (cut.exit_code, "is truncated" in cut.stderr) == (1, True)
    path.write_bytes(b"no such thing")
    none = run("jobs", "import", "cut", "--mysql-dump", str(path), *to)
    assert (none.exit_code, "cannot be read: Not a gzipped file" in none.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "give either --mysql-dump"),
        (("--mysql-dump", "a", "--sql", "mysql://h/d"), "give either --mysql-dump"),
        (("--mysql-dump", "no/such/file"), "cannot be read"),
        (("--sql", "secret"), "--sql needs an address"),
    ],
)
def test_wrong_use_is_told(words: tuple[str, ...], reason: str, to: tuple[str, str]) -> None:
    done = run("jobs", "import", "pages", *words, *to)
    assert (done.exit_code, reason in done.stderr, "secret" in done.stderr) == (2, True, False)
