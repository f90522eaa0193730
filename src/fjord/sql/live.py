"""The rows of the journal table in a database: read-only, page by page, as of one moment.

    mysql://user:password@host:3306/database?unix_socket=/run/mysqld/mysqld.sock
    mariadb://...                           the same
    postgresql://user:password@host:5432/database?host=/run/postgresql

Pages are read by id, each from the end of the previous one, so that none costs more than the first.
Of a text only so much is read that its length can be refused.  Errors never contain a password.
"""

from __future__ import annotations

import contextlib
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fjord import limits
from fjord.errors import FjordError, UsageError
from fjord.sql import shape
from fjord.sql.shape import Found

PAGE_ROWS: Final = 1000
_EXTRA: Final = "pip install 'fjord-journal[sql]'"
_CONNECT_SECONDS: Final = 10
_READ_SECONDS: Final = 300
# Characters, of which each has a byte at least.
_CHARACTERS_MAX: Final = {
    "uri": limits.JOB_KEY_BYTES_MAX + 1,
    "domain": limits.DOMAIN_BYTES_MAX + 1,
    "value": 8 * limits.VALUE_BYTES_MAX + 1,
}
# A page of the largest values must fit into memory.
_VALUE_PAGE_ROWS: Final = 10
_SCHEMES: Final = {"mysql": 3306, "mariadb": 3306, "postgresql": 5432, "postgres": 5432}
_SOCKETS: Final = {"mysql": "unix_socket", "mariadb": "unix_socket"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a database."""

    scheme: str
    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    socket: str = ""  # instead of host and port

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        port = "" if self.port == _SCHEMES[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{user}{self.socket or self.host + port}/{self.database}"

    @property
    def is_postgresql(self) -> bool:
        return self.scheme.startswith("postgres")


def parse(url: str) -> Address:
    """Reads the URL of a database.

    Raises:
        UsageError: if it is invalid; the text does not quote it, since it may have a password.
    """
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port
        query = dict(urllib.parse.parse_qsl(parts.query, strict_parsing=bool(parts.query)))
    except ValueError as error:
        raise UsageError(_NO_URL) from error
    socket = query.pop(_SOCKETS.get(parts.scheme, "host"), "")
    database = urllib.parse.unquote(parts.path.removeprefix("/"))
    if parts.scheme not in _SCHEMES or not (parts.hostname or socket) or not database or query:
        raise UsageError(_NO_URL)
    return Address(
        scheme=parts.scheme,
        host=parts.hostname or "localhost",
        port=port or _SCHEMES[parts.scheme],
        user=urllib.parse.unquote(parts.username or ""),
        password=urllib.parse.unquote(parts.password or ""),
        database=database,
        socket=socket,
    )


_NO_URL: Final = (
    "--sql needs an address such as mysql://user:password@host/database, mariadb://... or "
    "postgresql://...; special characters of a password are written as %40"
)


class Live:
    """The journal table of a database."""

    def __init__(self, address: Address, table: str, columns: Sequence[str]) -> None:
        """Notes what to read.

        Args:
            address: where the database is.
            table: its name, perhaps with that of its schema and a dot.
            columns: those that are wanted; a row has its cells in this order.
        """
        self._address = address
        self._columns = columns
        quote = '"' if address.is_postgresql else "`"
        # Drivers take a percent sign for an argument.
        parts = table.replace(quote, quote * 2).replace("%", "%%").split(".")
        self._name = ".".join(f"{quote}{part}{quote}" for part in parts)
        self._connection: Any = None
        self.table = table
        self.left_out: list[str] = []  # columns that are not read
        self.extent: tuple[int, int] | None = None  # the first id and the last, if they are numbers

    @contextlib.contextmanager
    def opened(self) -> Iterator[Live]:
        """Connects, and checks the table.

        Raises:
            FjordError: if that fails, or the table lacks columns.
        """
        with self._explained():
            self._connection = _connect(self._address)
        try:
            with self._explained():
                self._look()
            yield self
        finally:
            self._connection.close()

    def _look(self) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(_READ_ONLY[self._address.is_postgresql])
            cursor.execute(f"SELECT * FROM {self._name} WHERE 1 = 0", ())  # noqa: S608
            names = [str(one[0]).lower() for one in cursor.description]
            missing = shape.missing(names, ("id", *self._columns))
            if missing:
                raise FjordError(f"table {self.table} has no column {', '.join(missing)}")
            self.left_out = shape.left_out(names, self._columns)
            cursor.execute(f"SELECT MIN(id), MAX(id) FROM {self._name}", ())  # noqa: S608
            found = cursor.fetchone()
            if all(isinstance(one, int) for one in found):
                self.extent = (found[0], found[1])

    def rows(self) -> Iterator[Found]:
        """Yields rows in the order of their ids.

        Raises:
            FjordError: if the database fails.
        """
        has_values = shape.VALUE in self._columns
        count = _VALUE_PAGE_ROWS if has_values else PAGE_ROWS
        listed = ", ".join(
            f"LEFT({name}, {_CHARACTERS_MAX[name]})" if name in _CHARACTERS_MAX else name
            for name in self._columns
        )
        select = f"SELECT id, {listed} FROM {self._name}"  # noqa: S608 - it is quoted
        order = f" ORDER BY id LIMIT {count}"
        page = self._page(select + order, ())
        while page:
            for number, *cells in page:
                yield Found(number, cells)
            if len(page) < count:
                return
            page = self._page(f"{select} WHERE id > %s{order}", (page[-1][0],))

    def _page(self, statement: str, arguments: tuple[Any, ...]) -> list[Any]:
        with self._explained(), self._connection.cursor() as cursor:
            cursor.execute(statement, arguments)
            return list(cursor.fetchall())

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turns a driver's error into a FjordError, without the password."""
        try:
            yield
        except FjordError:
            raise
        except Exception as error:  # noqa: BLE001 - drivers have errors of their own
            text = " ".join(str(one) for one in error.args) or type(error).__name__
            if self._address.password:
                text = text.replace(self._address.password, "***")
            raise FjordError(f"{self._address}: {' '.join(text.split())}") from None


# As of one moment, and read-only.
_READ_ONLY: Final = {
    False: "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
    True: "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
}


def _connect(address: Address) -> Any:
    try:
        if address.is_postgresql:
            import psycopg

            return psycopg.connect(
                host=address.socket or address.host,
                port=address.port,
                user=address.user or None,
                password=address.password or None,
                dbname=address.database,
                connect_timeout=_CONNECT_SECONDS,
                client_encoding="UTF8",
            )
        import pymysql
    except ModuleNotFoundError as error:
        raise FjordError(f"reading a database needs {error.name}: {_EXTRA}") from error
    return pymysql.connect(
        host=address.host,
        port=address.port,
        unix_socket=address.socket or None,
        user=address.user or None,
        password=address.password,
        database=address.database,
        charset="utf8mb4",
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        write_timeout=_READ_SECONDS,
    )
