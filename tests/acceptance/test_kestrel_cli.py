"""`fjord kestrel`: what it says of the files of a Kestrel, and how it packs them."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from fjord.disk import LocalDisk
from fjord.kestrel import codec, collection, reader
from tests.acceptance.kestrel_queues import command, item, run
from tests.unit.kestrel import vectors
from tests.unit.kestrel.vectors import encoded

SOON_MS = int(time.time() + 3600) * 1000
SPOOL = {
    "cars.904": encoded(item(b"dead")),
    "cars.950": b"\x63",
    "cars.950.pack": encoded(item(b"open"), codec.remove_tentative(7), item(b"first")),
    "cars.1700000000951": encoded(
        item(b"second", expiry_ms=1), codec.confirm_remove(7), codec.remove()
    ),
    "cars": encoded(
        item(b"third", expiry_ms=SOON_MS),
        codec.remove_tentative(8),
        vectors.proceed(8, b"next", add_ms=1_700_000_000_000),
        codec.remove_tentative(9),
        codec.unremove(9),
    ),
    "cars~~1700000000960": b"half",
    "vans": encoded(
        codec.save_xid(4),
        vectors.add_xid(3, b"x\ny", add_ms=1_700_000_000_000),
        codec.remove_tentative(),
        vectors.add(b"old"),
        codec.remove_tentative(),
        vectors.state_dump(5, 0),
    ),
    "README.txt": b"notes",
}


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """Returns a directory with two queues, as a Kestrel leaves it."""
    for name, data in SPOOL.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


def lines(*words: str | Path) -> list[str]:
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def objects(*words: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*words, "--json").stdout.splitlines()]


DUMP = """\
Queue: cars
File: cars.950.pack
00000000  ADD 4     \n\
00000019  RSV 7
0000001e  ADD 5     \n\
File: cars.1700000000951
00000000  ADD 6      expired
0000001b  ACK 7
00000020  REM
File: cars
00000000  ADD 5      exp=SOON
0000001a  RSV 8
0000001f  CON 4      xid=8
0000003c  RSV 9
00000041  CAN 9

Journal size: 159 bytes, with 11 operations.
2 items totalling 9 bytes.
Queue: vans
File: vans
00000000  XID 4
00000005  ADD 3      xid=3
00000021  RSV 3
00000022  ADD 3     \n\
0000002e  RSV 5
0000002f  DMP 5 0

Journal size: 56 bytes, with 6 operations.
2 items totalling 6 bytes.
"""


def test_dump_prints_what_qdump_prints(spool: Path) -> None:
    found = lines("dump", spool)
    soon = found[10].removeprefix("00000000  ADD 5      exp=")
    assert 0 < int(soon) <= 3600_000
    assert found == DUMP.replace("SOON", soon).splitlines()
    assert lines("dump", spool / "cars.1700000000951", spool / "cars", "-q") == [
        *("", "Journal size: 33 bytes, with 3 operations.", "0 items totalling 0 bytes."),
        *("", "Journal size: 70 bytes, with 5 operations.", "1 items totalling 4 bytes."),
    ]
    # Of a directory there may be many, so they are named.
    assert lines("dump", spool, "-q")[4:6] == ["Queue: vans", ""]
    vans = spool / "vans"
    assert lines("dump", vans)[:2] == [f"Queue: {vans}", "00000000  XID 4"]
    for flag in ("-d", "--contents"):
        told = lines("dump", spool, "--queue", "vans", flag)
        assert told[3:5] == ["00000005  ADD 3      xid=3", "    x\\ny"]


def test_dump_gives_out_items_as_they_are(spool: Path) -> None:
    (spool / "vans").write_bytes(encoded(item(b"\0\xff"), item(b"\n"), codec.remove()))
    for flags, data in ((("-A", "--raw"), b"\0\xff\n"), (("-Q", "--raw-queue"), b"\n")):
        for flag in flags:
            assert run("dump", spool, "--queue", "vans", flag).stdout_bytes == data
    words = command("dump", spool / "cars", "-Q")
    done = subprocess.run(words, capture_output=True, check=False)
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", b"next")


VERIFIED = """\
DIR/cars.950.pack is whole: 56 bytes; 3 ops
DIR/cars.1700000000951 is whole: 33 bytes; 3 ops
DIR/cars is whole: 70 bytes; 5 ops
cars.904 is dead: a pack has taken its place
cars.950 is dead: a pack has taken its place
cars~~1700000000960 is temporary and counts for nothing
cars: 11 ops, 2 items of 9 bytes, 0 open items of 0 bytes, last xid 9
DIR/vans is whole: 56 bytes; 6 ops
vans: 6 ops, 0 items of 0 bytes, 2 open items of 6 bytes, last xid 5
README.txt is no file of a queue
whole: 2 queues, 4 files
"""


def test_verify_says_what_each_queue_has(spool: Path) -> None:
    assert lines("verify", spool) == VERIFIED.replace("DIR", str(spool)).splitlines()
    cars, vans = objects("verify", spool)
    assert [cars[name] for name in ("queue", "items", "bytes", "ops")] == ["cars", 2, 9, 11]
    assert (cars["dead"], cars["damaged"]) == (["cars.904", "cars.950"], False)
    whole = {"path": f"{spool}/vans", "bytes": 56, "ops": 6, "ending": "whole", "offset": 56}
    assert vans["files"] == [{**whole, "skipped_bytes": 0, "reason": ""}]
    assert objects("verify", spool, "--queue", "vans") == [vans]
    twice = [codec.remove_tentative(3)] * 2
    (spool / "vans").write_bytes(b"\x01" + encoded(item(b"1"), item(b"2"), *twice))
    found = lines("verify", spool, "--queue", "vans")
    assert "vans: 1 op on what was not there" in found
    assert "vans: 1 open item got another xid" in found


def test_files_that_are_not_whole_are_told_by_each_command(tmp_path: Path) -> None:
    one, known = encoded(item(b"one")), reader.Sum(24, 1)
    for name in ("changed.5", "missing.1", "missing.3", "torn"):
        (tmp_path / name).write_bytes(one)
    (tmp_path / "damaged").write_bytes(one + b"\x02\xff\xff\xff\xff more")
    (tmp_path / "torn").write_bytes(one + one[:-1])
    (tmp_path / "linked").symlink_to("torn")
    reader.put_sums(LocalDisk(), str(tmp_path), "changed", {5: known})
    reader.put_sums(LocalDisk(), str(tmp_path), "missing", {2: known})
    told = {
        "torn": "torn is torn at byte 24: an op of 24 bytes or more ends after 23",
        "changed": "changed.5 is changed: its first 24 bytes are not those that were written",
        "missing": "missing.2 is missing: it had 24 bytes, and an older file is there; put it back",
        "damaged": "damaged is damaged at byte 24: the size -1 is less than the 16 that it must "
        "be; 10 bytes cannot",
        "unreadable": "linked is a symbolic link; put the file itself in its place",
    }
    result = run("verify", tmp_path)
    assert result.exit_code == 1
    for sentence in told.values():
        assert f"{tmp_path}/{sentence}" in result.stdout
    assert result.stdout.splitlines()[-1] == "damaged: 4 of 7 files"
    endings = [file["ending"] for found in objects("verify", tmp_path) for file in found["files"]]
    assert sorted(endings) == sorted([*told, "whole", "whole"])
    for queue in ("torn", "changed", "missing", "damaged"):
        expected = int(queue != "torn")
        words = (tmp_path, "--queue", queue)
        assert run("verify", *words).exit_code == expected
        dumped = run("dump", *words, "-q")
        assert (dumped.exit_code, told[queue] in dumped.stderr) == (expected, True)
        packed = run("pack", *words)
        sentence = told[queue].partition(";")[0]
        assert (packed.exit_code, sentence in packed.stderr) == (expected, bool(expected))
        assert run("verify", *words).exit_code == 0
    packed = run("pack", tmp_path)
    told_of = f"fjord: linked was not packed: {tmp_path}/{told['unreadable']}\n"
    assert (packed.exit_code, packed.stderr) == (1, told_of)
    assert (tmp_path / "linked").is_symlink()
    left = run("verify", tmp_path).stdout
    assert "\n~~corrupt/damaged keeps what could not be read of a queue\n" in left
    assert "~~lock" not in left  # that is ours


def test_files_become_one_with_what_is_in_the_queue(tmp_path: Path) -> None:
    gone = [item(b"removed"), codec.remove()] * 100
    (tmp_path / "cars.904").write_bytes(encoded(*gone, item(b"open"), item(b"waits")))
    (tmp_path / "cars").write_bytes(encoded(codec.remove_tentative(7)))
    (tmp_path / "bikes").write_bytes(encoded(item(b"one")))

    def sizes() -> dict[str, int]:
        found = [one for one in sorted(tmp_path.iterdir()) if "~" not in one.name]
        return {one.name: one.stat().st_size for one in found}

    before = run("dump", tmp_path, "--raw-queue").stdout_bytes
    assert lines("pack", tmp_path) == [
        "bikes: 1 item, 0 open items; 24 bytes of files are 24 now",
        "cars: 1 item, 1 open item; 2956 bytes of files are 56 now",
    ]
    assert sizes() == {"bikes": 24, "cars": 56}
    assert run("dump", tmp_path, "--raw-queue").stdout_bytes == before
    assert run("verify", tmp_path).exit_code == 0
    (packed,) = objects("pack", tmp_path, "--queue", "cars", "--dialect", "kestrel-doc")
    counts = {"items": 1, "open_items": 1, "bytes_before": 56, "bytes_after": 61}
    assert packed == {"queue": "cars", **counts, "alerts": []}
    assert (tmp_path / "cars").read_bytes()[0] == codec.Opcode.SAVE_XID
    with collection.locked(LocalDisk(), str(tmp_path)):
        assert run("pack", tmp_path).exit_code == 2
    (tmp_path / "~~lock").unlink()
    (tmp_path / "~~lock").mkdir()  # as if there were no right to write
    result = run("pack", tmp_path)
    told = f"fjord: cannot open {tmp_path}: Is a directory\n"
    assert (result.exit_code, result.stderr) == (2, told)
    assert sizes() == {"bikes": 24, "cars": 61}


def test_the_largest_item_can_be_set(spool: Path) -> None:
    (spool / "vans").write_bytes(encoded(item(bytes(2 * 1024 * 1024))))
    assert run("verify", spool).exit_code == 0
    assert run("verify", spool, "--largest-item-mib", "1").exit_code == 1
    assert run("dump", spool, "-q", "--largest-item-mib", "1").exit_code == 1


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ("verify {}/vans", 2, "is not a directory"),
        ("verify {}/nowhere", 2, "is not a directory"),
        ("verify {} --queue boats", 1, "has no queue boats"),
        ("dump {}/nowhere", 2, "cannot be read: No such file or directory"),
        ("dump {}/vans --queue vans", 2, "--queue names a queue of one"),
        ("dump {} -A -Q", 2, "give one"),
        ("pack {} --queue boats", 1, "boats"),
        ("pack {} --dialect old", 2, "--dialect is one of"),
        ("pack {}/nowhere", 2, "nowhere"),
    ],
)
def test_wrong_use_is_explained(spool: Path, words: str, code: int, text: str) -> None:
    result = run(*words.format(spool).split())
    assert result.exit_code == code
    assert text in result.stderr
