"""What the verbs of `fjord kestrel` print."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from fjord.cli import output
from fjord.cli.output import tell
from fjord.disk import LocalDisk
from fjord.errors import UsageError
from fjord.kestrel import inspect, journal, names, reader
from fjord.kestrel.codec import Op, Opcode, Placed
from fjord.kestrel.collection import Packed
from fjord.kestrel.exporter import ExportOutcome
from fjord.kestrel.importer import ImportOutcome
from fjord.kestrel.inspect import Ending, FileReport, QueueReport
from fjord.kestrel.reader import JournalFile, QueueSurvey, ReadOptions
from fjord.kinds import Kind

# qdump's words for ops; of CONTINUE and those that add something, the size follows.
_WORDS: Final = {
    Opcode.ADD: "ADD",
    Opcode.REMOVE: "REM",
    Opcode.ADDX: "ADD",
    Opcode.REMOVE_TENTATIVE: "RSV",
    Opcode.SAVE_XID: "XID",
    Opcode.UNREMOVE: "CAN",
    Opcode.CONFIRM_REMOVE: "ACK",
    Opcode.ADD_XID: "ADD",
    Opcode.CONTINUE: "CON",
    Opcode.REMOVE_TENTATIVE_XID: "RSV",
    Opcode.STATE_DUMP: "DMP",
}


# -- dump -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """What of a journal is printed, and how."""

    now_ms: int  # expiries are told from here on
    is_quiet: bool = False
    has_contents: bool = False
    is_raw: bool = False
    is_raw_queue: bool = False
    is_json: bool = False


def journals(paths: Sequence[str], queue: str) -> Iterator[QueueSurvey]:
    """Yields the queues of directories; a file is a journal of its own.

    Raises:
        DirectoryError: if a path is nothing that can be read.
        NotFoundError: if there is no such queue.
        UsageError: if a queue is named, and a file.
    """
    for path in paths:
        if os.path.isdir(path):
            yield from reader.surveys(LocalDisk(), path, queue)
        elif queue:
            raise UsageError(f"{path} is no directory; --queue names a queue of one")
        else:
            yield reader.alone(LocalDisk(), path)


def dump(found: QueueSurvey, style: Style, options: ReadOptions) -> bool:
    """Prints a journal, and what is wrong with it; says whether something is."""
    is_text = not (style.is_raw or style.is_raw_queue or style.is_json)
    # A file that was named alone is no queue of a directory.
    is_alone = [file.path for file in found.files] == [found.queue]
    # The sums of many queues need their names; qdump has one journal, and does without.
    if is_text and not (style.is_quiet and is_alone):
        output.print_line(f"Queue: {found.queue}")
    size = 0
    items, files = inspect.replayed(found, options, inspect.MEMORY_BYTES_MAX)
    for file, segment in files:
        if is_text and not style.is_quiet and not is_alone:
            output.print_line(f"File: {file.name}")
        for placed in file.ops(options):
            items.apply(placed[0], segment, placed[1])
            size += placed[2]
            _print_op(found.queue, file, placed, items.reserved_xid, style)
        for sentence in file.sentences():
            tell(sentence)
    items.end_apply()
    sums = {
        "queue": found.queue,
        "bytes": size,
        "operations": sum(file.op_count for file in found.files),
        "items": items.count + len(items.open),
        "item_bytes": items.bytes + items.open_bytes,
        "open_items": len(items.open),
    }
    while style.is_raw_queue and (head := items.head()) is not None:
        sys.stdout.buffer.write(head.data)
        items.take()
    sys.stdout.buffer.flush()
    if style.is_json:
        output.print_json(sums)
    elif is_text:
        output.print_line("")
        output.print_line(
            "Journal size: {bytes} bytes, with {operations} operations.".format(**sums)
        )
        output.print_line("{items} items totalling {item_bytes} bytes.".format(**sums))
    for lost in found.missing:
        tell(lost.sentence)
    return bool(found.missing) or any(file.is_damaged or file.changed for file in found.files)


def _print_op(
    queue: str, file: JournalFile, placed: Placed, reserved_xid: int, style: Style
) -> None:
    op, offset, _ = placed
    if style.is_raw and op.item is not None:
        sys.stdout.buffer.write(op.item.data)
    if style.is_quiet or style.is_raw or style.is_raw_queue:
        return
    if style.is_json:
        output.print_json(_op_json(queue, file, placed, reserved_xid, style))
        return
    output.print_line(f"{offset & 0xFFFFFFFF:08x}  {_op_text(op, reserved_xid, style.now_ms)}")
    if style.has_contents and op.item is not None:
        output.print_line("    " + bytes(op.item.data).decode("latin-1"))


def _op_json(
    queue: str, file: JournalFile, placed: Placed, reserved_xid: int, style: Style
) -> dict[str, object]:
    op, offset, length = placed
    shown: dict[str, object] = {
        "queue": queue,
        "file": file.name,
        "offset": offset,
        "length": length,
        "op": op.opcode.name,
        "xid": op.xid or reserved_xid,
    }
    if op.opcode is Opcode.STATE_DUMP:
        shown["open_items"] = op.open_count
    if op.item is not None:
        shown["size"] = op.item.size
        shown["added_at"] = None if op.opcode is Opcode.ADD else moment(op.item.add_ms)
        shown["expires_at"] = moment(op.item.expiry_ms) if op.item.expiry_ms else None
        if style.has_contents:
            shown["data"] = bytes(op.item.data)
    return shown


def _op_text(op: Op, reserved_xid: int, now_ms: int) -> str:
    """Returns an op in the words of qdump."""
    opcode, xid, item, open_count = op
    word = _WORDS[opcode]
    if item is not None:
        expiry = ""
        if item.expiry_ms:
            left_ms = item.expiry_ms - now_ms
            expiry = " expired" if left_ms < 0 else f" exp={left_ms}"
        return f"{word} {item.size:<6d}{f' xid={xid}' if xid else ''}{expiry}"
    if opcode is Opcode.REMOVE:
        return word
    if opcode is Opcode.STATE_DUMP:
        return f"{word} {xid} {open_count}"
    return f"{word} {xid or reserved_xid}"


def moment(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, tz=UTC).isoformat()
    except (OverflowError, ValueError, OSError):
        return str(at_ms)


# -- verify ---------------------------------------------------------------------------------------


def verdict(found: Sequence[QueueReport]) -> str:
    """Returns what is said at the end, of all queues."""
    files = [file for one in found for file in one.files]
    count = output.counted(len(files), "file")
    if damaged := sum(file.is_damaged for file in files):
        return f"damaged: {damaged} of {count}"
    return f"whole: {output.counted(len(found), 'queue')}, {count}"


def queue_lines(one: QueueReport) -> Iterator[str]:
    for file in one.files:
        yield _file_line(file)
    for name in one.dead:
        yield f"{name} is dead: a pack has taken its place"
    for name in one.temporary:
        yield f"{name} is temporary and counts for nothing"
    yield (
        f"{one.queue}: {output.counted(one.ops, 'op')}, {output.counted(one.items, 'item')} of "
        f"{one.bytes} bytes, {output.counted(one.open_items, 'open item')} of "
        f"{one.open_bytes} bytes, last xid {one.last_xid}"
    )
    if one.missed:
        yield f"{one.queue}: {output.counted(one.missed, 'op')} on what was not there"
    if one.displaced:
        yield f"{one.queue}: {output.counted(one.displaced, 'open item')} got another xid"


def queue_json(one: QueueReport) -> dict[str, object]:
    return {**dataclasses.asdict(one), "ops": one.ops, "damaged": one.is_damaged}


def _file_line(file: FileReport) -> str:
    ops = output.counted(file.ops, "op")
    if file.ending in (Ending.TORN, Ending.DAMAGED):
        broken = reader.broken_sentence(
            file.path,
            file.offset,
            file.reason,
            file.skipped_bytes,
            is_torn=file.ending is Ending.TORN,
        )
        return f"{broken}; {ops} before it"
    return {
        Ending.WHOLE: f"{file.path} is whole: {file.bytes} bytes, {ops}",
        Ending.CHANGED: f"{file.path} is changed: {file.reason}; {ops} up to byte {file.offset} "
        "count as they are",
        Ending.MISSING: f"{file.path} is missing: {file.reason}",
        Ending.UNREADABLE: f"{file.path} {file.reason}; {ops} before that",
    }[file.ending]


def foreign(directory: str) -> Iterator[str]:
    """Yields what else is in a directory, in words."""
    disk = LocalDisk()
    for name in reader.foreign(disk, directory):
        yield f"{name} is no file of a queue"
    for name in names.left_sums(disk.names(directory)):
        yield f"{name} tells of a queue that has no file: it was deleted, or its file is lost"
    kept = os.path.join(directory, journal.DIRECTORY)
    for name in disk.names(kept) if disk.exists(kept) else ():
        yield f"{journal.DIRECTORY}/{name} keeps what could not be read of a queue"


# -- pack, import and export ----------------------------------------------------------------------


def pack_line(packed: Packed) -> str:
    return (
        f"{packed.queue}: {output.counted(packed.items, 'item')}, "
        f"{output.counted(packed.open_items, 'open item')}; "
        f"{packed.bytes_before} bytes of files are {packed.bytes_after} now"
    )


def import_line(one: ImportOutcome) -> str:
    """Returns what became of a queue, in words."""
    items = output.counted(one.items, "item")
    into = f"{one.kind} table" if one.kind is Kind.JOBS else "stream"
    if not one.items:
        return f"{one.queue}: no items"
    if one.is_done:
        return f"{one.queue}: {items}, imported into {into} {one.table} before"
    would = "to be imported" if one.is_dry else "imported"
    notes = [
        f"{count} {what}"
        for count, what in (
            (one.before, "imported before"),
            (one.tally.expired, "expired"),
            (one.tally.too_large, "too large"),
        )
        if count
    ]
    told = f" ({', '.join(notes)})" if notes else ""
    return f"{one.queue}: {items}, {one.tally.imported} {would} into {into} {one.table}{told}"


def import_total(found: Sequence[ImportOutcome]) -> str:
    """Returns what became of all queues, in words."""
    imported = sum(one.tally.imported for one in found)
    would = "to be imported" if any(one.is_dry for one in found) else "imported"
    return f"{output.counted(len(found), 'queue')}, {output.counted(imported, 'item')} {would}"


def import_json(one: ImportOutcome) -> dict[str, object]:
    return {
        "queue": one.queue,
        "table": one.table,
        "kind": str(one.kind),
        "dry_run": one.is_dry,
        "items": one.items,
        "imported_before": one.before,
        **one.tally._asdict(),
        "damaged": list(one.damaged),
    }


def export_line(one: ExportOutcome) -> str:
    expired = f" ({one.expired} expired)" if one.expired else ""
    items = output.counted(one.items, "item")
    return f"{one.table}: {items} exported to queue {one.queue}, {one.bytes} bytes{expired}"
