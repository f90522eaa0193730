"""What was set aside is sent again, once, whatever happens while that is prepared."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from fjord.client.spool import files, survey
from fjord.client.spool.files import Header, SpoolFile, line_of
from fjord.client.spool.reader import FileReader
from fjord.client.spool.records import HEAD, RecordKind
from fjord.client.spool.survey import Retried

NOW_US = 1_700_000_000_000_000
OLD = Header(b"A" * 16, NOW_US, bytes(8))


def record(key: bytes) -> bytes:
    return HEAD.pack(RecordKind.SET, 1, 0, 1, len(key), 0, NOW_US, 0, 0) + b"t" + key


def aside(line: bytes) -> bytes:
    return b"!" + line[1:]


WHOLE = [aside(line_of(record(b"key %d" % number))) for number in range(3)]
DAMAGED = aside(line_of(record(b"damaged"))).replace(b"A", b"B", 1)
TORN = aside(line_of(record(b"torn"))[:30])


@pytest.fixture
def directory(tmp_path: Path) -> str:
    """A spool with one file of records that were set aside."""
    data = [files.encode_header(OLD), b" " * 50, *WHOLE[:2], DAMAGED]
    data += [WHOLE[2], b" " * 20, TORN]
    (tmp_path / files.named("aside", OLD.identity)).write_bytes(b"".join(data))
    return str(tmp_path)


def retry(directory: str) -> list[Retried]:
    return list(survey.retry(directory, NOW_US))


def keys_of(directory: str) -> list[bytes]:
    """Returns the keys of all that would be sent, in order."""
    found = []
    for name in files.waiting_names(directory):
        file = SpoolFile(directory, name)
        source = FileReader(file)
        while (load := source.next_load(NOW_US)) is not None:
            found += [one[HEAD.size + 1 :] for one in load.records]
        file.close()
    return found


ALL = [b"key 0", b"key 1", b"key 2"]


def test_whole_records_are_sent_again_and_others_stay_marked(directory: str) -> None:
    (done,) = retry(directory)
    assert (done.name, done.records, done.left) == (files.named("aside", OLD.identity), 3, 2)
    assert files.waiting_names(directory) == [done.new_name]
    assert files.aside_names(directory) == []
    assert keys_of(directory) == ALL
    file = SpoolFile(directory, done.new_name)
    assert file.header is not None
    assert file.header.identity != OLD.identity
    assert files.named("retry", file.header.identity) == done.new_name
    fates = [survey.record_of(file, one) for found in survey.walk(file) for one in found.pieces]
    assert len(fates) == 1  # and half a line at the end, which is torn once the file is closed
    file.close()


def test_a_file_with_nothing_whole_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / files.named("aside", OLD.identity)
    path.write_bytes(files.encode_header(OLD) + DAMAGED + TORN)
    before = path.read_bytes()
    assert retry(str(tmp_path)) == [Retried(name=path.name, left=2, why=survey.NOTHING_WHOLE)]
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_read_does_not_keep_the_others(directory: str) -> None:
    none = files.named("aside", b"0" * 16)
    Path(directory, none).mkdir()
    first, second = retry(directory)
    assert (first.name, first.is_readable, first.new_name) == (none, False, "")
    assert first.why == "it cannot be read: Is a directory"
    assert (second.records, keys_of(directory)) == (3, ALL)


def test_a_disk_that_fails_to_read_is_told_of(
    directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: SpoolFile, offset: int, size: int) -> bytes:
        if offset:
            raise OSError(errno.EIO, "Input/output error")
        return read(file, offset, size)

    read = SpoolFile.read
    monkeypatch.setattr(SpoolFile, "read", fail)
    (only,) = retry(directory)
    assert (only.is_readable, only.why) == (False, "it cannot be read: Input/output error")


class CrashError(Exception):
    """The process is gone."""


def crash_at(step: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lets the process die before the step of that number; returns the steps as they are taken."""
    steps: list[str] = []

    def watched(name: str) -> Callable[..., None]:
        act = getattr(SpoolFile, name)

        def call(file: SpoolFile, *words: object) -> None:
            if len(steps) == step:
                raise CrashError
            steps.append(name)
            act(file, *words)

        return call

    for name in ("put_status", "put_header", "sync", "rename"):
        monkeypatch.setattr(SpoolFile, name, watched(name))
    return steps


STEPS = [*["put_status"] * 3, "sync", "put_header", "sync", "rename"]


@pytest.mark.parametrize("step", range(len(STEPS) + 1))
def test_a_crash_anywhere_loses_and_doubles_nothing(
    directory: str, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    with monkeypatch.context() as patch:
        steps = crash_at(step, patch)
        if step < len(STEPS):
            with pytest.raises(CrashError):
                retry(directory)
            assert keys_of(directory) == []
        else:
            retry(directory)
        assert steps == STEPS[:step]
    retry(directory)
    assert keys_of(directory) == ALL
    assert files.aside_names(directory) == []


def test_a_name_that_a_power_cut_took_back_is_given_again(directory: str) -> None:
    """The forwarder had seen the file under its new name, and had sent some of it."""
    (done,) = retry(directory)
    file = SpoolFile(directory, done.new_name)
    source = FileReader(file)
    load = source.next_load(NOW_US)
    assert load is not None
    file.put_status(load.starts[1], b"!")  # refused again; the number that the daemon has is behind
    file.rename(files.named("aside", OLD.identity))
    file.close()
    (again,) = retry(directory)
    assert again.new_name == done.new_name
    assert keys_of(directory) == [ALL[0], ALL[2]]  # as far as the daemon has not got them
    # What was refused is not taken for what has arrived.
    file = SpoolFile(directory, done.new_name)
    source = FileReader(file)
    source.align(load.end)
    assert source.next_load(NOW_US) is None
    kept = Counter(type(survey.record_of(file, one)) for found in survey.walk(file)
                   for one in found.pieces)  # fmt: skip
    assert kept[bytes] == 1
    file.close()
