"""Real databases in processes of their own: MariaDB and PostgreSQL of the distribution."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pymysql

USER = "fjord"
PASSWORD = "it's%secret"
URL_PASSWORD = "it's%25secret"
DATABASE = "snaplist"


@dataclass(frozen=True, slots=True)
class Server:
    """A database that runs."""

    scheme: str
    port: int
    socket: str  # a socket file, or the folder that it is in
    programs: str  # the folder of its other programs

    @property
    def url(self) -> str:
        return f"{self.scheme}://{USER}:{URL_PASSWORD}@127.0.0.1:{self.port}/{DATABASE}"

    def connect(self) -> Any:
        """Returns a connection on which every statement counts at once."""
        if self.scheme == "postgresql":
            return _postgresql(self.port, DATABASE)
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=PASSWORD,
            database=DATABASE,
            autocommit=True,
            charset="utf8mb4",
        )

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Runs statements; returns what the last one finds."""
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def fill(self, rows: Sequence[tuple[Any, ...]], columns: str) -> None:
        """Inserts rows into the table `journal`."""
        marks = ", ".join(["%s"] * len(rows[0]))
        insert = f"INSERT INTO journal ({columns}) VALUES ({marks})"  # noqa: S608
        with contextlib.closing(self.connect()) as connection, connection.cursor() as cursor:
            cursor.executemany(insert, rows)

    def program(self, name: str, *words: str, text: bytes = b"") -> bytes:
        """Runs a program of the database as a user would; returns what it prints."""
        if self.scheme == "postgresql":
            where = ["-h", "127.0.0.1", "-p", str(self.port), "-U", USER]
        else:
            where = ["--no-defaults", f"--socket={self.socket}", f"--user={USER}"]
        done = subprocess.run(
            [os.path.join(self.programs, name), *where, *words],
            input=text,
            capture_output=True,
            check=False,
            timeout=60,
            env={**os.environ, "PGPASSWORD": PASSWORD, "MYSQL_PWD": PASSWORD},
        )
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout


@contextlib.contextmanager
def mariadb() -> Iterator[Server]:
    with _folder() as folder:
        data = folder / "data"
        # It runs as root only if that is said.
        options = ["--no-defaults", f"--datadir={data}", f"--user={_name()}"]
        install = _program("mariadb-install-db")
        made = [install, *options, "--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run(made, check=True, capture_output=True, timeout=120)
        path, port = str(folder / "s"), _free_port()
        options += [f"--socket={path}", f"--port={port}", "--bind-address=127.0.0.1"]
        options += ["--skip-log-bin", "--innodb-flush-log-at-trx-commit=0", f"--tmpdir={folder}"]
        with _running([_program("mariadbd"), *options], b"ready for connections"):
            root = pymysql.connect(unix_socket=path, user="root")
            with contextlib.closing(root), root.cursor() as cursor:
                cursor.execute(f"CREATE DATABASE {DATABASE}")
                cursor.execute(f"CREATE USER {USER} IDENTIFIED BY %s", (PASSWORD,))
                cursor.execute(f"GRANT ALL ON *.* TO {USER}")
            yield Server("mariadb", port, path, os.path.dirname(_program("mariadb-dump")))


@contextlib.contextmanager
def postgresql() -> Iterator[Server]:
    programs = os.path.dirname(max(glob.glob("/usr/lib/postgresql/*/bin/initdb")))
    with _folder() as folder:
        data, secret = folder / "data", folder / "secret"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        init = ["--auth=scram-sha-256", f"--username={USER}", f"--pwfile={secret}", "--no-sync"]
        made = [f"{programs}/initdb", f"--pgdata={data}", "--encoding=UTF8", "--locale=C", *init]
        subprocess.run(made, check=True, capture_output=True, timeout=120, cwd=folder, **_as_user())
        port = _free_port()
        options = ["-D", str(data), "-k", str(folder), "-p", str(port), "-F"]
        command = [f"{programs}/postgres", *options, "-c", "listen_addresses=127.0.0.1"]
        with _running(command, b"ready to accept connections", cwd=folder, **_as_user()):
            with _postgresql(port, "postgres") as one:
                one.execute(f"CREATE DATABASE {DATABASE}")
            yield Server("postgresql", port, str(folder), programs)


def _postgresql(port: int, database: str) -> Any:
    return psycopg.connect(
        host="127.0.0.1", port=port, dbname=database, user=USER, password=PASSWORD, autocommit=True
    )


def _program(name: str) -> str:
    found = shutil.which(name, path=f"{os.defpath}:/usr/sbin")
    assert found is not None
    return found


def _name() -> str:
    return pwd.getpwuid(os.geteuid()).pw_name


def _as_user() -> dict[str, Any]:
    """Returns who a server is that refuses to be root."""
    return {"user": "nobody", "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    """Makes a folder with a short name, since that of a socket has some 100 bytes at most."""
    with tempfile.TemporaryDirectory(prefix="sql", ignore_cleanup_errors=True) as name:
        if os.geteuid() == 0:
            shutil.chown(name, "nobody", "nogroup")
        yield Path(name)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


@contextlib.contextmanager
def _running(command: list[str], ready: bytes, **options: Any) -> Iterator[None]:
    """Starts a server, and waits until its log says that it is ready."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, **options)
    assert process.stderr is not None
    log: list[bytes] = []
    try:
        while ready not in (line := process.stderr.readline()):
            log.append(line)
            assert line, b"".join(log).decode()
        yield
    finally:
        process.send_signal(signal.SIGQUIT if b"postgres" in os.fsencode(command[0]) else 15)
        process.communicate(timeout=60)
