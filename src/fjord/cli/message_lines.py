"""Messages from lines: read as they come, appended as many at a time as have come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any, Final

from fjord.cli import arguments, lines, row_json
from fjord.cli.arguments import TypeName
from fjord.cli.lines import Bad, Row
from fjord.client.entries import Key
from fjord.declared.schema import Schema
from fjord.errors import UsageError

if TYPE_CHECKING:
    from fjord.client.streams import Stream

Message = tuple[Key, Any]  # a value, or a row
# Makes a message of a line; None if there is none in it.
Read = Callable[[bytes], Message | None]

BATCH_ROWS: Final = 10_000
_NONE: Final = Schema()


class Appending:
    """Appends the lines of a file, and counts."""

    def __init__(
        self,
        stream: Stream,
        read: Read,
        progress: Callable[[int, int | None], None],
    ) -> None:
        self._stream = stream
        self._read = read
        self._progress = progress
        self.appended = 0
        self.bad = 0
        self.last_seq: int | None = None  # of the last message, once there is one

    def run(self, file: IO[bytes]) -> Iterator[Bad]:
        """Appends all lines of a file, in order; yields those that are bad."""
        number = read_bytes = 0
        for come in lines.as_they_come(file):
            for start in range(0, len(come), BATCH_ROWS):
                batch = come[start : start + BATCH_ROWS]
                for bad in self._append_lines(number + start + 1, batch):
                    self.bad += 1
                    yield bad
            number += len(come)
            read_bytes += sum(map(len, come)) + len(come)
            self._progress(read_bytes, None)

    def _append_lines(self, first: int, batch: list[bytes]) -> Iterator[Bad]:
        rows: list[Row[Message]] = []
        for number, line in enumerate(batch, start=first):
            found = lines.parse(number, line, self._read)
            if isinstance(found, Bad):
                yield found
            elif found.what is not None:
                rows.append(Row(number, found.what))
        yield from lines.in_halves(rows, self._append)

    def _append(self, rows: list[Row[Message]]) -> None:
        keys, values = zip(*(row.what for row in rows), strict=True)
        self.last_seq = self._stream.append_many(values, keys=keys if any(keys) else None)
        self.appended += len(rows)


def plain(key: str, type_: TypeName) -> Read:
    """Returns what makes a message of a line that is nothing but its value."""

    def read(line: bytes) -> Message:
        lines.check_size(line)
        if type_ is TypeName.buffer:
            return key, line
        try:
            return key, arguments.value(line.decode(), type_)
        except UnicodeDecodeError as error:
            raise UsageError("it is not UTF-8; --type buffer takes any bytes") from error

    return read


def in_json(key: str, schema: Schema = _NONE) -> Read:
    """Returns what makes a message of a line of JSON; one without a key gets `key`."""
    fields = row_json.fields(schema, _FIELDS) if schema.columns else _FIELDS

    def read(line: bytes) -> Message | None:
        if not line.strip():
            return None
        found: dict[str, Any] = lines.fields_of(line, "message", fields)
        if schema.columns:
            found = row_json.gathered(found, _FIELDS)
        return found.get("key", key), found.get("value")

    return read


_FIELDS: Final[dict[str, lines.Field]] = {"key": lines.key, "value": lines.value}
