"""`fjord spool`: what it says of a spool, and what it does about records that were set aside."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import fjord
from fjord.cli.commands import app
from fjord.client.spool import files
from tests.acceptance.daemon import Daemon
from tests.acceptance.forward_process import Forwarding, long_period, make_past, spool_files
from tests.acceptance.test_cli_forward import once


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

    words = ("--priority", "important", "--delay", "60")
    assert shell("push", "pages", "http://example.com/a", "hello", *words) == 0
    assert shell("append", "events", "-", "--key", "user:7", stdin="signed up") == 0
    assert shell("set", "settings", "retries", "-3", "--type", "integer") == 0
    assert shell("push", "pages", "key", "--delay", "-1") == 2
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
    assert (found[0]["priority"], found[3]["due_at"] > found[3]["at"]) == (10, True)
    due, at = (datetime.fromisoformat(found[0][name]) for name in ("due_at", "at"))
    assert (due - at).total_seconds() == 60
    assert found[5]["expires_at"] == found[6]["expires_at"] > found[5]["at"]
    assert {one["file"] for one in found} == {file_of(spool).name}
    assert len(objects("dump", spool, "--limit", "4")) == 4
    first = run("dump", spool, "--limit", "1").stdout
    assert first.split("\t")[3:8] == ["push", "pages", "http://example.com/a", "string", "hello"]
    assert run("dump", spool, "--aside").stdout == ""


@pytest.mark.parametrize("verb", ["status", "dump", "verify", "retry"])
def test_what_is_no_spool_is_told(tmp_path: Path, verb: str) -> None:
    result = run(verb, tmp_path / "none")
    assert result.exit_code == 2
    assert f"{tmp_path / 'none'} is not a spool: No such file or directory" in result.stderr


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
