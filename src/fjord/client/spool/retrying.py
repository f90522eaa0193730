"""What was set aside is sent again: files of it get a name under which the forwarder takes them.

    aside-A.spool, of A:  "!" to "@" -> header of B -> retry-B.spool
                                     sync           sync           sync

The daemon has a number of A that says that all of it has arrived; so the file becomes B, of which
it knows nothing.  After a crash anywhere between, the next try ends the same:

- Of A, with some lines changed: none of it was sent; the others are changed too.
- Of B, with the old name: all lines were changed.  After a power cut it may be that the new name
  was lost, and that the forwarder had seen it.  So the file stays B, and no line is changed any
  more: what has arrived is known by its number, and what was refused again is marked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from fjord.client.spool import files, survey
from fjord.client.spool.files import SpoolFile
from fjord.client.spool.lines import WAITING, Fate, Piece

NOTHING_WHOLE = "nothing in it can be sent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """What became of one file."""

    name: str  # before
    new_name: str = ""  # empty: it stays
    records: int = 0  # that are sent again
    left: int = 0  # pieces that are torn or damaged
    why: str = ""  # it stays
    is_readable: bool = True


def unreadable(name: str, error: OSError) -> Retried:
    why = f"it cannot be read: {error.strerror or error}"
    return Retried(name=name, why=why, is_readable=False)


def retry(directory: str, now_us: int) -> Iterator[Retried]:
    """Lets everything be sent again that was set aside and is whole; yields file by file.

    Records that were set aside in a file that is still written to are not among them: their turn
    is when all others of the file are sent.

    Raises:
        OSError: if a file cannot be written to.
    """
    for name in files.aside_names(directory):
        try:
            file = SpoolFile(directory, name)
        except FileNotFoundError:
            continue  # somebody else was faster
        except OSError as error:
            yield unreadable(name, error)
            continue
        try:
            # Who has it, or had it before, gives it another name.
            if file.try_lock() and file.is_named():
                yield _retry(file, now_us)
        finally:
            file.close()


def _retry(file: SpoolFile, now_us: int) -> Retried:
    name, header = file.name, file.header
    try:
        waiting, aside, left = _look(file)
    except OSError as error:
        return unreadable(name, error)
    if header is None or files.aside_name(header.identity) == name:
        if not waiting and not aside:
            return Retried(name=name, left=left, why=NOTHING_WHOLE)
        for piece in _whole(file):
            file.put_status(piece.start, WAITING)
        waiting += aside
        file.sync()
        header = files.new_header(now_us)
        file.put_header(header)
        file.sync()
    file.rename(files.retry_name(header.identity))
    return Retried(name=name, new_name=file.name, records=waiting, left=left)


def _look(file: SpoolFile) -> tuple[int, int, int]:
    """Looks at all lines of a file.

    Returns:
        How many can be sent as they are, how many could if they were not set aside, and how many
        pieces are no lines.
    """
    waiting = pieces = 0
    for found in survey.walk(file):
        waiting += len(found.records)
        pieces += len(found.pieces)
    aside = sum(1 for _ in _whole(file))
    return waiting, aside, pieces - aside


def _whole(file: SpoolFile) -> Iterator[Piece]:
    """Yields what was set aside and is whole.

    It is looked for each time anew, since a file may hold millions; a piece may be changed when it
    is yielded, and all behind it is still found.
    """
    for found in survey.walk(file):
        for piece in found.pieces:
            if not isinstance(survey.record_of(file, piece), Fate):
                yield piece
