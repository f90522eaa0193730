"""`fjord jobs import` and `fjord jobs export`: from and to real databases."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import fjord
from tests.acceptance import databases
from tests.acceptance.databases import Server
from tests.acceptance.shell import found, run
from tests.acceptance.sql_rows import COLUMNS, HOUR_US, NOW_US, jobs

# One process starts each server, once.
pytestmark = [pytest.mark.xdist_group("sql"), pytest.mark.usefixtures("empty")]

# The table of the original, but for NOT NULL of the generated column, which MariaDB does not take.
CREATE_MYSQL: Final = """
CREATE TABLE journal
  ( id              INT NOT NULL PRIMARY KEY AUTO_INCREMENT
  , domain          TEXT NOT NULL          -- will change to the domain ID
  , priority        SMALLINT NOT NULL
  , key_start_date  BIGINT NOT NULL        -- Unix timestamp in microseconds
  , uri             TEXT NOT NULL
  , status          BIGINT DEFAULT NULL
  , next_processing BIGINT AS (IF(status, status, key_start_date))
  , INDEX journal_index USING BTREE (domain(64), priority, key_start_date) COMMENT 'the next page'
  , INDEX journal_uri USING BTREE (uri(256)) COMMENT 'we keep only the latest entry for each URI'
  , INDEX journal_next_row USING BTREE (domain(64), next_processing) COMMENT 'when to wake up'
  ) CHARSET=utf8mb4
"""
CREATE_POSTGRESQL: Final = """
CREATE TABLE journal (id SERIAL PRIMARY KEY, domain TEXT NOT NULL, priority SMALLINT NOT NULL,
  key_start_date BIGINT NOT NULL, uri TEXT NOT NULL, status BIGINT)
"""
# All that quoting can go wrong with.
NASTY: Final = [
    "it's",
    'say "x"',
    "back\\slash\\n",
    "\\",
    "'",
    "''",
    "a;b -- c /* d */ # e",
    "line\nline\r\n\ttab",
    "\x1a\x08\x01",
    "b\xfccher/\u20ac/\U0001f600",
    "%s %d %%",
    "`name`",
    "),(1,'x'",
]
Rows = list[tuple[str, int, int, str, int | None]]


def rows() -> Rows:
    """Returns rows that are good, in the order in which their jobs are due."""
    nasty: Rows = [
        (f"d{number}", 10, NOW_US - HOUR_US + number, f"http://x/{text}", None)
        for number, text in enumerate(NASTY)
    ]
    return [
        *nasty,
        ("failed.example", 20, NOW_US - 48 * HOUR_US, "http://failed/", NOW_US - 25 * HOUR_US),
        ("begun.example", 30, NOW_US - 2 * HOUR_US, "http://begun/", NOW_US - HOUR_US),
        ("later.example", 40, NOW_US + HOUR_US, "http://later/", None),
    ]


def wanted(given: Rows, *, is_now: bool = False) -> list[tuple[str, str, int, int]]:
    """Returns the jobs that rows become: key, domain, priority and process date."""
    return [
        (
            uri,
            domain,
            priority,
            status + 24 * HOUR_US
            if status and not is_now and status + 24 * HOUR_US > NOW_US
            else start_us,
        )
        for domain, priority, start_us, uri, status in given
    ]


@pytest.fixture(scope="module")
def mariadb() -> Iterator[Server]:
    with databases.mariadb() as one:
        yield one


@pytest.fixture(scope="module")
def postgresql() -> Iterator[Server]:
    with databases.postgresql() as one:
        yield one


@pytest.fixture(
    params=[
        pytest.param("mariadb", marks=pytest.mark.mariadb),
        pytest.param("postgresql", marks=pytest.mark.postgresql),
    ]
)
def server(request: pytest.FixtureRequest) -> Server:
    """Returns each of the databases, with the rows in it."""
    one: Server = request.getfixturevalue(request.param)
    create = CREATE_MYSQL if one.scheme == "mariadb" else CREATE_POSTGRESQL
    one.run("DROP TABLE IF EXISTS journal", create)
    one.fill(rows(), COLUMNS)
    return one


# -- from a database ------------------------------------------------------------------------------


@pytest.mark.req("FJ-17")
@pytest.mark.mariadb
@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--complete-insert",),
        ("--hex-blob", "--skip-opt", "--compact", "--complete-insert"),
        ("--replace", "--no-create-info", "--complete-insert"),
    ],
    ids=" ".join,
)
def test_a_real_dump_is_imported(
    options: tuple[str, ...],
    mariadb: Server,
    to: tuple[str, str],
    db: fjord.Database,
    tmp_path: Path,
) -> None:
    mariadb.run(
        "DROP TABLE IF EXISTS journal, pages, views",
        CREATE_MYSQL,
        "CREATE TABLE pages (id INT, uri TEXT, body BLOB)",
        "INSERT INTO pages VALUES (1, 'it''s; INSERT INTO journal', 0x00275c0a)",
        """CREATE OR REPLACE TRIGGER t AFTER INSERT ON pages FOR EACH ROW BEGIN
           INSERT INTO journal (domain, priority, key_start_date, uri) VALUES ('t', 1, 2, 'a;');
           INSERT INTO journal (domain, priority, key_start_date, uri) VALUES ('t', 1, 2, 'b;');
           END""",
    )
    mariadb.fill(rows(), COLUMNS)
    path = tmp_path / "dump.sql"
    path.write_bytes(mariadb.program("mariadb-dump", *options, databases.DATABASE))
    done = run("jobs", "import", "pages", "--mysql-dump", str(path), "--json", *to)
    assert done.exit_code == 0, done.stderr
    assert found(done)[0]["imported"] == len(rows())
    assert jobs(db) == wanted(rows())


@pytest.mark.req("FJ-17")
def test_a_live_table_is_imported(server: Server, db: fjord.Database, to: tuple[str, str]) -> None:
    done = run("jobs", "import", "pages", "--sql", server.url, "--json", *to)
    assert done.exit_code == 0, done.stderr
    assert found(done)[0] == {
        "table": "pages",
        "sql_table": "journal",
        "imported": len(rows()),
        "bad": 0,
    }
    assert jobs(db) == wanted(rows())
    assert server.run("SELECT COUNT(*) FROM journal") == [(len(rows()),)]
    again = run("jobs", "import", "pages", "--sql", server.url, *to)
    assert (again.exit_code, jobs(db)) == (0, wanted(rows()))
    now = run("jobs", "import", "now", "--sql", server.url, "--now", *to)
    assert (now.exit_code, jobs(db, "now")) == (0, wanted(rows(), is_now=True))


def test_a_live_table_is_read_in_pages(
    server: Server, db: fjord.Database, to: tuple[str, str]
) -> None:
    many: Rows = [("d", 50, NOW_US - HOUR_US + at, f"http://many/{at}", None) for at in range(2345)]
    server.fill(many, COLUMNS)
    server.run("DELETE FROM journal WHERE id % 3 = 0")
    left = server.run("SELECT domain, priority, key_start_date, uri, status FROM journal")
    done = run("jobs", "import", "pages", "--sql", server.url, "--json", *to)
    assert found(done)[0]["imported"] == len(left)
    assert sorted(jobs(db)) == sorted(wanted(left))


# -- to a database --------------------------------------------------------------------------------


@pytest.mark.req("FJ-17")
def test_an_export_is_taken_by_each_database_and_comes_back(
    server: Server, db: fjord.Database, to: tuple[str, str], tmp_path: Path
) -> None:
    run("jobs", "import", "pages", "--sql", server.url, "--now", *to)
    server.run("DROP TABLE journal")
    path = tmp_path / "pages.sql"
    dialect = "mysql" if server.scheme == "mariadb" else "postgresql"
    words = ("--with-create", dialect, "--out", str(path), "--json")
    done = run("jobs", "export", "pages", *words, *to)
    assert (done.exit_code, json.loads(done.stdout)["exported"]) == (0, len(rows()))
    if server.scheme == "mariadb":
        server.program("mariadb", "--binary-mode", databases.DATABASE, text=path.read_bytes())
    else:
        stops = ("--set=ON_ERROR_STOP=1", "--no-psqlrc", databases.DATABASE)
        server.program("psql", *stops, text=path.read_bytes())
    found = server.run("SELECT domain, priority, uri, status, next_processing FROM journal")
    assert sorted(found) == sorted(
        (domain, priority, uri, None, start_us) for domain, priority, start_us, uri, _ in rows()
    )
    back = run("jobs", "import", "back", "--sql", server.url, *to)
    assert (back.exit_code, jobs(db, "back")) == (0, jobs(db))
