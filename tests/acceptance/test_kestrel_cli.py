"""`fjord kestrel`: what it says of the files of a Kestrel."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fjord.cli.commands import app
from fjord.disk import LocalDisk
from fjord.kestrel import codec
from fjord.kestrel.codec import Dialect, Op
from fjord.kestrel.journal import Journal

ADD_MS = 1_700_000_000_000
SOON_MS = int(time.time() + 3600) * 1000


def run(*words: str | Path) -> Result:
    result = CliRunner().invoke(app, ["kestrel", *map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def lines(*words: str | Path) -> list[str]:
    result = run(*words)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def objects(*words: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*words, "--json").stdout.splitlines()]


def written(*made: Op) -> bytes:
    return b"".join(
        codec.encode(op, next(one for one in Dialect if op.opcode in codec.WRITTEN[one]))
        for op in made
    )


def item(data: bytes, expiry_ms: int = 0) -> Op:
    return codec.addx(data, add_ms=ADD_MS, expiry_ms=expiry_ms)


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    """Returns a directory with two queues, as a Kestrel leaves it."""
    (tmp_path / "cars.904").write_bytes(written(item(b"dead")))
    (tmp_path / "cars.950").write_bytes(b"\x63")
    (tmp_path / "cars.950.pack").write_bytes(
        written(item(b"open"), codec.remove_tentative(7), item(b"first"))
    )
    (tmp_path / "cars.1700000000951").write_bytes(
        written(item(b"second", expiry_ms=1), codec.confirm_remove(7), codec.remove())
    )
    (tmp_path / "cars").write_bytes(
        written(
            item(b"third", expiry_ms=SOON_MS),
            codec.remove_tentative(8),
            codec.proceed(8, b"next", add_ms=ADD_MS),
            codec.remove_tentative(9),
            codec.unremove(9),
        )
    )
    (tmp_path / "cars~~1700000000960").write_bytes(b"half")
    (tmp_path / "vans").write_bytes(
        written(
            codec.save_xid(4),
            codec.add_xid(3, b"x\ny", add_ms=ADD_MS),
            codec.remove_tentative(),
            codec.add(b"old"),
            codec.remove_tentative(),
            codec.state_dump(5, 0),
        )
    )
    (tmp_path / "README.txt").write_text("notes")
    return tmp_path


def test_dump_prints_what_qdump_prints(spool: Path) -> None:
    found = lines("dump", spool)
    soon = found[10].removeprefix("00000000  ADD 5      exp=")
    assert 0 < int(soon) <= 3600_000
    assert found == [
        "Queue: cars",
        "File: cars.950.pack",
        "00000000  ADD 4     ",
        "00000019  RSV 7",
        "0000001e  ADD 5     ",
        "File: cars.1700000000951",
        "00000000  ADD 6      expired",
        "0000001b  ACK 7",
        "00000020  REM",
        "File: cars",
        f"00000000  ADD 5      exp={soon}",
        "0000001a  RSV 8",
        "0000001f  CON 4      xid=8",
        "0000003c  RSV 9",
        "00000041  CAN 9",
        "",
        "Journal size: 159 bytes, with 11 operations.",
        "2 items totalling 9 bytes.",
        "Queue: vans",
        "File: vans",
        "00000000  XID 4",
        "00000005  ADD 3      xid=3",
        "00000021  RSV 3",
        "00000022  ADD 3     ",
        "0000002e  RSV 5",
        "0000002f  DMP 5 0",
        "",
        "Journal size: 56 bytes, with 6 operations.",
        "2 items totalling 6 bytes.",
    ]


def test_dump_of_files_takes_each_for_itself(spool: Path) -> None:
    found = lines("dump", spool / "cars.1700000000951", spool / "cars", "-q")
    assert found == [
        "",
        "Journal size: 33 bytes, with 3 operations.",
        "0 items totalling 0 bytes.",
        "",
        "Journal size: 70 bytes, with 5 operations.",
        "1 items totalling 4 bytes.",
    ]
    # Of a directory there may be many, so they are named.
    assert lines("dump", spool, "-q")[4:6] == ["Queue: vans", ""]
    path = spool / "vans"
    assert lines("dump", path)[:2] == [f"Queue: {path}", "00000000  XID 4"]


def test_dump_can_be_of_one_queue_and_with_contents(spool: Path) -> None:
    found = lines("dump", spool, "--queue", "vans", "-d")
    assert found[:5] == [
        "Queue: vans",
        "File: vans",
        "00000000  XID 4",
        "00000005  ADD 3      xid=3",
        "    x\\ny",
    ]
    assert lines("dump", spool, "--queue", "vans", "--contents") == found


def test_dump_gives_out_items_as_they_are(spool: Path) -> None:
    (spool / "vans").write_bytes(written(item(b"\0\xff"), item(b"\n"), codec.remove()))
    for flag in ("-A", "--raw"):
        assert run("dump", spool, "--queue", "vans", flag).stdout_bytes == b"\0\xff\n"
    for flag in ("-Q", "--raw-queue"):
        assert run("dump", spool, "--queue", "vans", flag).stdout_bytes == b"\n"


def test_dump_as_json(spool: Path) -> None:
    *found, sums = objects("dump", spool, "--queue", "vans", "--contents")
    assert found[1] == {
        "queue": "vans",
        "file": "vans",
        "offset": 5,
        "length": 28,
        "op": "ADD_XID",
        "xid": 3,
        "size": 3,
        "added_at": "2023-11-14T22:13:20+00:00",
        "expires_at": None,
        "data": {"base64": "eAp5"},
    }
    assert found[3]["added_at"] is None
    assert found[4]["xid"] == 5
    assert found[5]["open_items"] == 0
    assert sums == {
        "queue": "vans",
        "bytes": 56,
        "operations": 6,
        "items": 2,
        "item_bytes": 6,
        "open_items": 2,
    }
    assert "data" not in objects("dump", spool, "--queue", "vans")[1]


def test_a_date_that_no_calendar_has_is_a_number(spool: Path) -> None:
    (spool / "vans").write_bytes(written(codec.addx(b"", add_ms=2**62, expiry_ms=-(2**62))))
    found = objects("dump", spool, "--queue", "vans")[0]
    assert (found["added_at"], found["expires_at"]) == (str(2**62), str(-(2**62)))
    assert lines("dump", spool, "--queue", "vans")[2] == "00000000  ADD 0      expired"


def test_verify_says_what_each_queue_has(spool: Path) -> None:
    assert lines("verify", spool) == [
        f"{spool}/cars.950.pack is whole: 56 bytes, 3 ops",
        f"{spool}/cars.1700000000951 is whole: 33 bytes, 3 ops",
        f"{spool}/cars is whole: 70 bytes, 5 ops",
        "cars.904 is dead: a pack has taken its place",
        "cars.950 is dead: a pack has taken its place",
        "cars~~1700000000960 is temporary and counts for nothing",
        "cars: 11 ops, 2 items of 9 bytes, 0 open items of 0 bytes, last xid 9",
        f"{spool}/vans is whole: 56 bytes, 6 ops",
        "vans: 6 ops, 0 items of 0 bytes, 2 open items of 6 bytes, last xid 5",
        "README.txt is no file of a queue",
        "whole: 2 queues, 4 files",
    ]


def test_verify_as_json(spool: Path) -> None:
    cars, vans = objects("verify", spool)
    assert (cars["queue"], cars["items"], cars["bytes"], cars["ops"]) == ("cars", 2, 9, 11)
    assert (cars["dead"], cars["damaged"]) == (["cars.904", "cars.950"], False)
    assert vans["files"] == [
        {
            "path": f"{spool}/vans",
            "bytes": 56,
            "ops": 6,
            "ending": "whole",
            "offset": 56,
            "skipped_bytes": 0,
            "reason": "",
        }
    ]
    assert objects("verify", spool, "--queue", "vans") == [vans]


def test_a_torn_tail_is_told_and_is_no_damage(spool: Path) -> None:
    data = (spool / "cars").read_bytes()
    (spool / "cars").write_bytes(data + written(item(b"torn"))[:-1])
    result = run("verify", spool, "--queue", "cars")
    assert result.exit_code == 0
    assert f"{spool}/cars is torn at byte 70: an op of 25 bytes or more ends after 24; " in (
        result.stdout
    )
    assert "24 bytes do not count; 5 ops before it" in result.stdout
    result = run("dump", spool, "-q")
    assert (result.exit_code, "cars is torn at byte 70" in result.stderr) == (0, True)


def test_damage_is_told_with_its_place_and_ends_with_1(spool: Path) -> None:
    with (spool / "cars.1700000000951").open("ab") as file:
        file.write(b"\x02\xff\xff\xff\xff more")
    result = run("verify", spool)
    assert result.exit_code == 1
    told = "is damaged at byte 33: the size -1 is less than the 16 that it must be; 10 bytes cannot"
    assert told in result.stdout
    assert result.stdout.splitlines()[-1] == "damaged: 1 of 4 files"
    found = objects("verify", spool)[0]
    assert (found["damaged"], found["files"][1]["ending"]) == (True, "damaged")
    result = run("dump", spool, "--queue", "cars")
    assert result.exit_code == 1
    assert told in result.stderr
    assert "00000041  CAN 9" in result.stdout  # of the file behind it


def test_a_changed_byte_of_a_file_that_fjord_wrote_is_told_and_ends_with_1(spool: Path) -> None:
    assert run("pack", spool, "--queue", "vans").exit_code == 0
    (line, *_) = lines("verify", spool, "--queue", "vans")
    assert line.startswith(f"{spool}/vans is whole: ")
    data = (spool / "vans").read_bytes()
    (spool / "vans").write_bytes(data[:25] + bytes((data[25] ^ 1,)) + data[26:])
    result = run("verify", spool)
    assert result.exit_code == 1
    told = f"{spool}/vans is changed: its first {len(data)} bytes are not those that were written"
    assert f"{told}; 4 ops up to byte {len(data)} count as they are" in result.stdout
    assert "sums" not in result.stdout
    assert result.stdout.splitlines()[-1] == "damaged: 1 of 4 files"
    found = objects("verify", spool, "--queue", "vans")[0]
    assert (found["damaged"], found["files"][0]["ending"]) == (True, "changed")
    result = run("dump", spool, "--queue", "vans", "-q")
    assert (result.exit_code, told in result.stderr) == (1, True)
    result = run("pack", spool, "--queue", "vans")
    assert (result.exit_code, f"{told}; it counts" in result.stderr) == (1, True)
    assert run("verify", spool, "--queue", "vans").exit_code == 0


def test_a_missing_file_of_a_queue_that_fjord_wrote_is_told_and_ends_with_1(tmp_path: Path) -> None:
    journal = Journal(LocalDisk(), str(tmp_path), "cars", now_ms=lambda: ADD_MS)
    assert list(journal.replay(ADD_MS)) == []
    journal.begin()
    for _ in range(4):
        journal.append(item(b"one"))
        journal.rotate()
    journal.append(item(b"one"))
    journal.sync()
    journal.close()
    assert run("verify", tmp_path).exit_code == 0
    first, lost, *_ = sorted(tmp_path.glob("cars.*"))
    lost.unlink()
    told = f"{lost} is missing: it had 24 bytes, and an older file is there; put it back"
    result = run("verify", tmp_path)
    assert (result.exit_code, told in result.stdout) == (1, True)
    assert result.stdout.splitlines()[-1] == "damaged: 1 of 5 files"
    (found,) = objects("verify", tmp_path)
    assert (found["damaged"], found["files"][-1]["ending"]) == (True, "missing")
    result = run("dump", tmp_path, "-q")
    assert (result.exit_code, told in result.stderr) == (1, True)
    first.rename(tmp_path / "kept")  # what is gone from the oldest file on is no damage
    assert run("verify", tmp_path).exit_code == 0
    (tmp_path / "kept").rename(first)
    result = run("pack", tmp_path)
    assert (result.exit_code, told in result.stderr) == (1, True)
    assert run("verify", tmp_path).exit_code == 0
    (tmp_path / "cars").unlink()
    left = "cars~~sums tells of a queue that has no file: it was deleted, or its file is lost"
    assert left in lines("verify", tmp_path)


def test_a_file_that_cannot_be_read_is_told_with_all_others(spool: Path) -> None:
    (spool / "vans").rename(spool / "elsewhere")
    (spool / "vans").symlink_to("elsewhere")
    result = run("verify", spool)
    assert result.exit_code == 1
    told = f"{spool}/vans is a symbolic link; put the file itself in its place"
    assert told in result.stdout
    assert f"{spool}/cars is whole: " in result.stdout
    assert result.stdout.splitlines()[-1].startswith("damaged: 1 of ")
    result = run("pack", spool)
    assert result.exit_code == 1
    assert result.stderr == f"fjord: vans was not packed: {told}\n"
    assert [line.partition(":")[0] for line in result.stdout.splitlines()] == ["cars", "elsewhere"]
    assert (spool / "vans").is_symlink()


def test_ops_on_what_is_not_there_are_told(spool: Path) -> None:
    (spool / "vans").write_bytes(
        b"\x01" + written(item(b"1"), item(b"2"), *[codec.remove_tentative(3)] * 2)
    )
    found = lines("verify", spool, "--queue", "vans")
    assert "vans: 1 op on what was not there" in found
    assert "vans: 1 open item got another xid" in found


def test_the_largest_item_can_be_set(spool: Path) -> None:
    (spool / "vans").write_bytes(written(item(bytes(2 * 1024 * 1024))))
    assert run("verify", spool).exit_code == 0
    assert run("verify", spool, "--largest-item-mib", "1").exit_code == 1
    assert run("dump", spool, "-q", "--largest-item-mib", "1").exit_code == 1


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["verify", "{}/vans"], 2, "is not a directory"),
        (["verify", "{}/nowhere"], 2, "is not a directory"),
        (["verify", "{}", "--queue", "boats"], 1, "has no queue boats"),
        (["dump", "{}/nowhere"], 2, "cannot be read: No such file or directory"),
        (["dump", "{}/vans", "--queue", "vans"], 2, "--queue names a queue of one"),
        (["dump", "{}", "-A", "--json"], 2, "give one"),
        (["dump", "{}", "-A", "-Q"], 2, "give one"),
    ],
)
def test_wrong_use_is_explained(spool: Path, words: list[str], code: int, text: str) -> None:
    result = run(*(word.replace("{}", str(spool)) for word in words))
    assert result.exit_code == code
    assert text in result.stderr


def test_it_runs_as_users_run_it(spool: Path) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("fjord"), "kestrel", "dump", spool, "-Q"],
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, b"", b"thirdnext")
