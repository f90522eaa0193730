"""`fjord spool`: what it says of a spool, and what it does about records that were set aside."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import fjord
from fjord.cli.commands import app
from fjord.client.spool import files
from fjord.client.spool.survey import RULES
from fjord.jobs import Priority
from tests.acceptance.daemon import Daemon
from tests.acceptance.forward_process import Forwarding, long_period, make_past, spool_files
from tests.acceptance.test_cli_forward import once, unused_port


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("spool") / "data") as one:
        yield one


def run(*words: str | Path, stdin: str = "") -> Result:
    result = CliRunner().invoke(app, ["spool", *map(str, words)], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def objects(*words: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(*words, "--json").stdout.splitlines()]


def file_of(spool: Path) -> Path:
    (name,) = (name for name in spool_files(spool) if name[0].isdigit())
    return spool / name


def damaged(data: bytes, at: int) -> bytes:
    """Returns the same with another letter at some place."""
    return data[:at] + (b"y" if data[at : at + 1] == b"x" else b"x") + data[at + 1 :]


def test_what_is_written_from_a_shell_is_shown(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    period = long_period()

    def shell(*words: str, stdin: str = "") -> int:
        return run(words[0], spool, *words[1:], "--period", str(period), stdin=stdin).exit_code

    assert shell("push", "pages", "http://example.com/a", "hello") == 0
    assert shell("append", "events", "-", "--key", "user:7", stdin="signed up") == 0
    assert shell("set", "settings", "retries", "-3", "--type", "integer") == 0
    with fjord.spool(spool, period=period) as writer:
        writer.jobs("pages").push_many(keys=["x", "y"], values=[b"\xff", None], delay=60)
        writer.kv("settings").set_many({"a": 1.5, "b": True}, ttl=60)
        writer.kv("settings").delete("c")
        writer.kv("settings").delete_many(["d", "e"])
    found = objects("dump", spool)
    assert [(one["what"], one["table"], one["key"], one.get("value")) for one in found] == [
        ("push", "pages", "http://example.com/a", "hello"),
        ("append", "events", "user:7", {"base64": "c2lnbmVkIHVw"}),
        ("set", "settings", "retries", -3),
        ("push", "pages", "x", {"base64": "/w=="}),
        ("push", "pages", "y", None),
        ("set", "settings", "a", 1.5),
        ("set", "settings", "b", True),
        ("delete", "settings", "c", None),
        ("delete", "settings", "d", None),
        ("delete", "settings", "e", None),
    ]
    assert found[3]["offset"] == found[4]["offset"] < found[5]["offset"]
    assert found[3]["due_at"] > found[3]["at"]
    assert found[5]["expires_at"] == found[6]["expires_at"] > found[5]["at"]
    assert {one["file"] for one in found} == {file_of(spool).name}
    assert len(objects("dump", spool, "--limit", "4")) == 4
    first = run("dump", spool, "--limit", "1").stdout
    assert first.split("\t")[3:8] == ["push", "pages", "http://example.com/a", "string", "hello"]
    assert run("dump", spool, "--aside").stdout == ""


def test_writes_from_a_shell_have_options(tmp_path: Path) -> None:
    words = ["--priority", "important", "--delay", "60", "--period", "60"]
    assert run("push", tmp_path, "pages", "http://example.com/a", *words).exit_code == 0
    header = files.decode_header(file_of(tmp_path).read_bytes()[:96])
    assert header is not None
    slot = files.slot_of(header.created_us, 60 * 1_000_000)
    assert file_of(tmp_path).name == files.name_of(slot)
    (pushed,) = objects("dump", tmp_path)
    assert pushed["priority"] == Priority.IMPORTANT
    waits = datetime.fromisoformat(pushed["due_at"]) - datetime.fromisoformat(pushed["at"])
    assert waits == timedelta(seconds=60)
    spool = tmp_path / "other"
    period = str(long_period())
    assert run("set", spool, "settings", "-5", "x", "--period", period).exit_code == 0
    assert run("append", spool, "events", "x", "--period", period).exit_code == 0
    assert run("delete", spool, "settings", "theme", "--period", period).exit_code == 0
    found = [(one["what"], one["key"]) for one in objects("dump", spool)]
    assert found == [("set", "-5"), ("append", ""), ("delete", "theme")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--priority", "urgent"], "urgent is not a priority"),
        (["--delay", "-1"], "-1 is not within 0 to 31622400 seconds"),
        (["--period", "0.5"], "0.5 is not within 1 to 604800 seconds"),
        (["-", "--type", "integer"], "is not a valid integer"),
    ],
)
def test_a_bad_option_writes_nothing(tmp_path: Path, words: list[str], said: str) -> None:
    result = run("push", tmp_path / "spool", "pages", "key", *words)
    assert result.exit_code == 2
    assert said in " ".join(result.stderr.replace("│", " ").split())
    assert not (tmp_path / "spool").exists()


def test_a_file_that_cannot_be_read_does_not_keep_the_others(tmp_path: Path) -> None:
    assert run("append", tmp_path, "events", "one").exit_code == 0
    name = files.name_of(int(file_of(tmp_path).name[:2]) + 1)
    (tmp_path / name).mkdir()
    said = f"{name} cannot be read: not a regular file"
    status = run("status", tmp_path)
    assert (status.exit_code, said in status.stdout) == (1, True)
    dumped = run("dump", tmp_path, "--json")
    assert (dumped.exit_code, said in dumped.stderr) == (1, True)
    assert json.loads(dumped.stdout)["value"] == "one"
    verified = run("verify", tmp_path)
    assert verified.exit_code == 2
    assert verified.stdout.splitlines()[1:] == [said, "whole: 1 file; 1 file cannot be read"]
    assert [one["problem"] for one in objects("verify", tmp_path)] == ["", "not a regular file"]
    tried = run("retry", tmp_path)
    assert (tried.exit_code, tried.stdout.splitlines()) == (
        1,
        [
            f"{name} stays: it cannot be read: not a regular file",
            "0 records to be sent again, 0 left; 1 file cannot be read",
        ],
    )


def test_status_counts_what_waits(tmp_path: Path) -> None:
    with fjord.spool(tmp_path, period=long_period()) as spool:
        spool.stream("events").append(b"one")
        spool.stream("events").append_many([b"two", b"three"])
    file = file_of(tmp_path)
    (status,) = objects("status", tmp_path)
    (report,) = status["files"]
    assert (report["file"], report["waiting"], report["set_aside"]) == (file.name, 2, 0)
    assert report["waiting_bytes"] == status["waiting_bytes"] == file.stat().st_size - 96
    assert status["oldest_at"] == report["oldest_at"] <= report["newest_at"]
    assert (status["forwarder"], status["alerts"]) == (False, [])
    text = run("status", tmp_path)
    assert text.exit_code == 0
    row, totals, forwarder = text.stdout.splitlines()
    assert row.split("\t")[:2] == [file.name, "2"]
    assert totals.startswith("2 records waiting, ")
    assert forwarder == "no forwarder is running"


@pytest.mark.parametrize("verb", ["status", "dump", "verify", "retry"])
def test_what_is_no_spool_is_told(tmp_path: Path, verb: str) -> None:
    result = run(verb, tmp_path / "none")
    assert result.exit_code == 2
    assert f"{tmp_path / 'none'} is not a spool: No such file or directory" in result.stderr


def test_verify_finds_damage_and_is_not_troubled_by_torn_lines(tmp_path: Path) -> None:
    with fjord.spool(tmp_path, period=long_period()) as spool:
        for number in range(3):
            spool.jobs("jobs").push(f"job {number}")
    file = file_of(tmp_path)
    data = file.read_bytes()
    with file.open("ab") as torn:
        torn.write(data[96:140])
    whole = run("verify", tmp_path)
    assert whole.exit_code == 0
    assert "3 waiting, 0 set aside, 44 bytes of a half line" in whole.stdout
    assert whole.stdout.splitlines()[-1] == "whole: 1 file"
    second = data.index(b"\n", 96) + 1
    file.write_bytes(damaged(data, second + 20))
    result = run("verify", tmp_path)
    assert result.exit_code == 2
    assert "2 waiting, 0 set aside, 1 damaged" in result.stdout
    assert result.stdout.splitlines()[-1] == "damaged: 1 of 1 file"
    (found,) = objects("verify", tmp_path)
    assert (found["waiting"], found["damaged"], found["torn"]) == (2, 1, 0)
    file.write_bytes(b"x" + data[1:])
    result = run("verify", tmp_path)
    assert (result.exit_code, result.stdout.splitlines()[0].split(", ")[-1]) == (2, "1 damaged")
    (found,) = objects("verify", tmp_path)
    assert found["damaged"] is not True
    assert found["damaged"] == 1


@pytest.mark.req("FJ-24", "FJ-25")
def test_what_was_set_aside_is_shown_and_sent_again(daemon: Daemon, tmp_path: Path) -> None:
    """Two refused records and a damaged one; then the table is mended, and the damage stays."""
    period = long_period()
    words = ("--period", str(period))
    with fjord.connect(daemon.url) as db, fjord.spool(tmp_path, period=period) as spool:
        db.jobs("mixed").push("a job")
        spool.kv("mixed").set("a", 1)
        spool.kv("fine").set("f", 1)
        spool.kv("mixed").set_many({"b": 2, "c": 3})
        spool.kv("mixed").set("damaged", 4)
        spool.kv("fine").set("g", 2)
    file = file_of(tmp_path)
    data = file.read_bytes()
    starts = [96, *(at + 1 for at, one in enumerate(data) if one == 10 and at > 96)]
    file.write_bytes(damaged(data, starts[3] + 20))

    done = once(tmp_path, daemon.url, *words)
    assert (done.returncode, done.stdout.split(", ")[0]) == (1, "2 records sent")
    assert "3 set aside" in done.stdout
    said = f"2 records from byte {starts[0]} on are refused and were set aside: WRONG_KIND"
    assert said in done.stderr
    result = run("status", tmp_path)
    assert result.exit_code == 1
    assert f"alert 80: {file.name}: has records that were set aside" in result.stdout
    assert f"see `fjord spool dump {tmp_path} --aside`" in result.stdout
    shown = objects("dump", tmp_path, "--aside")
    assert [one.get("key", one.get("problem")) for one in shown] == ["a", "b", "c", "damaged"]
    assert shown[3]["offset"] == starts[3]
    # They cannot be sent again as long as others write to the file.
    with fjord.spool(tmp_path, period=period) as spool:
        spool.kv("fine").set("h", 3)
        kept = run("retry", tmp_path)
        assert f"{file.name} stays: a writer has it open" in kept.stdout
    early = run("retry", tmp_path)
    assert early.exit_code == 1
    assert f"{file.name} stays: it is not fully sent" in early.stdout

    make_past(tmp_path, file.name)
    assert "has records that were set aside" in once(tmp_path, daemon.url, *words).stderr
    (aside,) = spool_files(tmp_path)
    assert files.is_aside(aside)
    with fjord.connect(daemon.url) as db:
        db.drop("mixed")
        again = run("retry", tmp_path)
        assert again.exit_code == 1
        assert "2 records to be sent again, 1 left" in again.stdout
        (retried,) = spool_files(tmp_path)
        assert retried.startswith("retry-")
        last = once(tmp_path, daemon.url, "--json", *words)
        assert json.loads(last.stdout)["records"] == 2
        assert [db.kv("mixed").get(key) for key in ("a", "b", "c", "damaged")] == [1, 2, 3, None]
    (left,) = spool_files(tmp_path)
    assert files.is_aside(left)
    assert left != aside
    assert run("retry", tmp_path).stdout.startswith(f"{left} stays: nothing in it can be sent")
    assert [one["problem"] for one in objects("dump", tmp_path, "--aside")] == ["damaged"]
    assert run("verify", tmp_path).exit_code == 2


@pytest.mark.req("FJ-22")
def test_a_running_forwarder_sends_at_once_what_is_tried_again(
    daemon: Daemon, tmp_path: Path
) -> None:
    with fjord.connect(daemon.url) as db:
        db.kv("woken").set("key", "value")
        assert run("push", tmp_path, "woken", "job").exit_code == 0
        make_past(tmp_path, file_of(tmp_path).name)
        assert once(tmp_path, daemon.url).returncode == 1
        db.drop("woken")
        with Forwarding(tmp_path, daemon.url, "--poll", "3600") as forwarding:
            forwarding.read_log_until("alert 80")
            assert run("retry", tmp_path).exit_code == 0
            (job,) = db.jobs("woken").next(1, wait=30)
            assert job.key == "job"
            assert forwarding.stop() == 0
    # A stop may come between the commit and the deletion of the file.
    assert once(tmp_path, daemon.url).returncode == 0
    assert spool_files(tmp_path) == []


@pytest.mark.req("FJ-24", "FJ-26")
def test_the_watch_rules_are_seen_in_status_log_and_metrics(tmp_path: Path) -> None:
    """One spool that breaks them all, while the daemon is away."""
    names = [file_with(tmp_path, number, b"x" * 100) for number in range(4)]
    large = tmp_path / file_with(tmp_path, 4, *[os.urandom(900_000)] * 14)
    assert large.stat().st_size > 12_000_000
    (tmp_path / names[1]).chmod(0o666)
    long_ago = (tmp_path / names[2]).stat().st_mtime - timedelta(hours=25).total_seconds()
    os.utime(tmp_path / names[2], (long_ago, long_ago))
    if os.geteuid() == 0:
        os.chown(tmp_path / names[3], 12345, -1)
    identity = b"a" * 16
    (tmp_path / names[0]).rename(tmp_path / files.aside_name(identity))
    with (tmp_path / files.aside_name(identity)).open("r+b") as file:
        file.seek(96)
        file.write(b"!")
    expected = {*RULES} - (set() if os.geteuid() == 0 else {"owner"})

    result = run("status", tmp_path)
    assert result.exit_code == 1
    (status,) = objects("status", tmp_path)
    assert {alert["rule"] for alert in status["alerts"]} == expected
    severities = [alert["severity"] for alert in status["alerts"]]
    assert severities == sorted(severities, reverse=True)
    url = f"fjord://127.0.0.1:{unused_port()}"
    with Forwarding(tmp_path, url, "--http", "127.0.0.1:0") as forwarding:
        forwarding.read_log_until(
            "is the daemon fast enough?",  # how much waits is counted at its own moment
            *(
                f"WARNING alert {alert['severity']}: {alert['text']}"
                for alert in status["alerts"]
                if alert["rule"] != "size"
            ),
        )
        metrics = forwarding.metrics()
        assert forwarding.stop() == 0
    assert {rule: metrics[f"fjord_forwarder_alerts:{rule}"] > 0 for rule in RULES} == {
        rule: rule in expected for rule in RULES
    }
    for alert in status["alerts"]:
        assert alert["text"] in result.stdout


def file_with(spool: Path, number: int, *values: bytes) -> str:
    """Makes a file of some period that is over; returns its name."""
    before = spool_files(spool)
    with fjord.spool(spool, period=long_period()) as writer:
        for value in values:
            writer.stream("events").append(value)
    (current,) = {*spool_files(spool)} - {*before}
    name = files.name_of(int(current[:2]) + 3 + number)
    (spool / current).rename(spool / name)
    return name
