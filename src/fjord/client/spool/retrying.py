"""What was set aside is sent again: files of it get a name under which the forwarder takes them.

    aside-A.spool, of A:  ends of lines -> "!" to "@" -> header of B -> retry-B.spool
                                        sync          sync           sync           sync

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """What became of one file."""

    name: str  # before
    new_name: str  # empty: it stays, since nothing in it can be sent
    records: int  # that are sent again
    left: int  # pieces that are torn or damaged


def retry(directory: str, now_us: int) -> Iterator[Retried]:
    """Lets everything be sent again that was set aside and is whole; yields file by file.

    Records that were set aside in a file that is still written to are not among them: their turn
    is when all others of the file are sent.

    Raises:
        OSError: if a file cannot be opened or written to.
    """
    for name in files.aside_names(directory):
        try:
            file = SpoolFile(directory, name)
        except FileNotFoundError:
            continue  # somebody else was faster
        try:
            # Who has it, or had it before, gives it another name.
            if file.try_lock() and file.is_named():
                yield _retry(file, now_us)
        finally:
            file.close()


def _retry(file: SpoolFile, now_us: int) -> Retried:
    name, header = file.name, file.header
    waiting, aside, left = _look(file)
    if header is None or files.aside_name(header.identity) == name:
        if not waiting and not aside:
            return Retried(name=name, new_name="", records=0, left=left)
        # The end of a line may be erased with what is behind it.  It is needed to know the line
        # for whole, so it is there first.
        for piece in aside:
            file.put_end(piece.end)
        file.sync()
        for piece in aside:
            file.put_status(piece.start, WAITING)
        waiting += len(aside)
        file.sync()
        header = files.new_header(now_us)
        file.put_header(header)
        file.sync()
    file.rename(files.retry_name(header.identity))
    return Retried(name=name, new_name=file.name, records=waiting, left=left)


def _look(file: SpoolFile) -> tuple[int, list[Piece], int]:
    """Looks at all lines of a file.

    Returns:
        How many can be sent as they are, those that could if they were not set aside, and how many
        pieces are no lines.
    """
    waiting, left = 0, 0
    aside: list[Piece] = []
    for found in survey.walk(file):
        waiting += len(found.records)
        for piece in found.pieces:
            if isinstance(survey.record_of(file, piece), Fate):
                left += 1
            else:
                aside.append(piece)
    return waiting, aside, left
