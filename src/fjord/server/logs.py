"""Log lines: one event each, a few words and fields, as text for people or JSON for machines.

User data never breaks a line: control characters, and everything that is not plain ASCII, are
escaped, and long fields are cut.  Lines of a kind that come too often are only counted, and the
next one says how many were left out.  Payloads are never logged.
"""

from __future__ import annotations

import datetime
import json
import logging
import re
import sys
from typing import Final

from fjord import limits

FORMATS: Final = ("text", "json")
_log = logging.getLogger("fjord.server")
_PLAIN: Final = re.compile(r"[!#-<>-\[\]-~]+\Z")  # needs no quotes: no space, quote, = or \
_KINDS_MAX: Final = 1000


def note(level: int, what: str, *, trace: BaseException | None = None, **fields: object) -> None:
    """Logs an event; `what` is the same words each time, the fields differ."""
    _log.log(level, what, exc_info=trace, extra={"fields": fields})


def set_up(form: str, level: int) -> None:
    """Sends the log to standard error in one of `FORMATS`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if form == "json" else _Text())
    handler.addFilter(Seldom())
    logging.basicConfig(level=level, handlers=[handler], force=True)


class Seldom(logging.Filter):
    """Limits how many lines of a kind pass per interval.

    Critical lines always pass, and so do those marked `is_asked_for`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._kinds: dict[str, tuple[float, int, int]] = {}  # kind: start, passed, left out

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "is_asked_for", False):
            return True
        kind = str(record.msg)
        begin, passed, left_out = self._kinds.get(kind, (record.created, 0, 0))
        if not 0 <= record.created - begin < limits.LOG_WINDOW_SECONDS:
            begin, passed = record.created, 0
        if passed >= limits.LOG_LINES_MAX and record.levelno < logging.CRITICAL:
            self._kinds[kind] = (begin, passed, left_out + 1)
            return False
        if left_out:
            record.left_out = left_out
        if len(self._kinds) >= _KINDS_MAX:
            self._kinds.clear()
        self._kinds[kind] = (begin, passed + 1, 0)
        return True


class _Text(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO serving data=/var/lib/fjord`."""

    def format(self, record: logging.LogRecord) -> str:
        words = [_moment(record), record.levelname, _escaped(record.getMessage())]
        words += [f"{name}={_quoted(value)}" for name, value in _fields(record).items()]
        return " ".join(words)


class _Json(logging.Formatter):
    """One JSON object a line: time, level, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "message": _cut(record.getMessage()),
        }
        for name, value in _fields(record).items():
            line[name] = value if isinstance(value, bool | int | float) else _cut(str(value))
        return json.dumps(line)


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = dict(getattr(record, "fields", {}))
    if hasattr(record, "left_out"):
        fields["left_out"] = record.left_out
    if record.exc_info and record.exc_info[0] is not None:
        fields["trace"] = logging.Formatter().formatException(record.exc_info)
    return fields


def _moment(record: logging.LogRecord) -> str:
    moment = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _quoted(value: object) -> str:
    text = _cut(str(value))
    return text if _PLAIN.match(text) else json.dumps(text)


def _escaped(text: str) -> str:
    return json.dumps(_cut(text))[1:-1].replace('\\"', '"')


def _cut(text: str) -> str:
    most = limits.LOG_FIELD_CHARACTERS_MAX
    if len(text) <= most or text.startswith("Traceback"):
        return text
    return text[:most] + "..."
