"""`fjord stream` against a real daemon."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Any

import pytest

import fjord
from tests.acceptance.daemon import FJORD, Daemon
from tests.acceptance.shell import found, process, run, values


def started(*words: str) -> subprocess.Popen[str]:
    """Starts a command that goes on for ever, and returns when it follows."""
    one = subprocess.Popen(
        [*FJORD, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if "-f" in words or "--follow" in words:
        assert one.stderr is not None
        assert one.stderr.readline() == "following; press Ctrl-C to stop\n"
    return one


def lines(one: subprocess.Popen[str], count: int) -> list[dict[str, Any]]:
    assert one.stdout is not None
    return [json.loads(one.stdout.readline()) for _ in range(count)]


def stopped(one: subprocess.Popen[str]) -> int:
    one.send_signal(signal.SIGINT)
    one.communicate(timeout=60)
    return one.returncode


# -- appending and reading ------------------------------------------------------------------------


@pytest.mark.req("JQ-02", "KY-02")
def test_messages_are_appended_and_read_under_two_names(to: tuple[str, str]) -> None:
    """Some of it in processes of their own, as a person would type it."""
    append, words = ("stream", "append", "life"), ("stream", "read", "life", "--subscriber")
    assert process(*append, "signed up", "--key", "user:7", *to).returncode == 0
    seq, _, *rest = process(*words, "billing", *to).stdout.rstrip("\n").split("\t")
    assert rest == ["user:7", "string", "signed up"]
    assert run(*words, "billing", *to).stdout == ""
    assert run(*append, *to, text="paid\nleft\n").exit_code == 0
    assert values(run(*words, "billing", "--json", *to)) == ["paid", "left"]
    assert values(run(*words, "late", "-n", "2", "--json", *to)) == ["signed up", "paid"]
    listed = run("stream", "subscribers", "life", "--lag", *to).stdout.splitlines()
    assert [line.split("\t")[0::4] for line in listed] == [["billing", "0"], ["late", "1"]]
    assert run("stream", "seek", "life", "billing", seq, *to).exit_code == 0
    assert values(run(*words, "billing", "--json", *to)) == ["signed up", "paid", "left"]


def test_plain_lines_are_what_they_are(to: tuple[str, str]) -> None:
    done = run("stream", "append", "plain", *to, text=b"one\n\n{}\n\xff\nlast")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "line 4: it is not UTF-8; use --type buffer for any bytes" in done.stderr
    assert "4 messages appended, 1 bad line" in done.stderr
    raw = run("stream", "append", "plain", "--type", "buffer", *to, text=b"\xff\n")
    assert raw.exit_code == 0
    assert values(run("stream", "read", "plain", "--json", *to)) == [
        "one",
        "",
        "{}",
        "last",
        {"base64": "/w=="},
    ]


@pytest.mark.req("KY-01")
def test_many_lines_are_few_commits(to: tuple[str, str], db: fjord.Database) -> None:
    before = db.stats()
    text = "".join(f"line {number}\n" for number in range(30_000))
    assert run("stream", "append", "many", *to, text=text).exit_code == 0
    after = db.stats()
    assert after["durable_seq"] >= before["durable_seq"] + 30_000
    assert after["syncs"] - before["syncs"] < 30
    last = found(run("stream", "tail", "many", "-n", "2", "--json", *to))
    assert [one["value"] for one in last] == ["line 29998", "line 29999"]
    counted = run("stream", "read", "many", "--json", *to).stdout.count("\n")
    assert counted == 30_000


# -- where reading begins, and how it goes on -----------------------------------------------------


@pytest.mark.req("JQ-02")
@pytest.mark.parametrize("named", [False, True])
def test_reading_begins_where_it_is_said(
    to: tuple[str, str], db: fjord.Database, named: bool
) -> None:
    stream = db.stream(f"start-{named}")
    first = stream.append(b"1")
    second = stream.append(b"2")
    (_, two) = stream.read().messages

    def begin(where: str) -> list[int]:
        name = ("--subscriber", f"from-{len(where)}-{where[:3]}") if named else ()
        done = run("stream", "read", f"start-{named}", "--start", where, *name, "--json", *to)
        return [one["seq"] for one in found(done)]

    assert begin("beginning") == [first, second]
    assert begin("end") == []
    assert begin(str(second)) == [second]
    assert begin(two.at.isoformat()) == [second]


@pytest.mark.req("KY-02")
def test_a_stream_is_followed_until_it_is_stopped(to: tuple[str, str], db: fjord.Database) -> None:
    stream = db.stream("followed")
    stream.append_many([b"1", b"2", b"3"])
    tail = started("stream", "tail", "followed", "-n", "2", "-f", "--json", *to)
    read = started("stream", "read", "followed", "--subscriber", "s", "--follow", "--json", *to)
    assert [one["value"] for one in lines(tail, 2)] == [{"base64": "Mg=="}, {"base64": "Mw=="}]
    assert len(lines(read, 3)) == 3
    stream.append_many(["new", "newer"])
    assert [one["value"] for one in lines(tail, 2)] == ["new", "newer"]
    assert [one["value"] for one in lines(read, 2)] == ["new", "newer"]
    assert (stopped(tail), stopped(read)) == (0, 0)
    assert [one.name for one in stream.subscribers()] == ["s"]


# -- mode latest ----------------------------------------------------------------------------------


@pytest.mark.req("KY-02")
def test_the_latest_of_each_key_is_a_map_too(to: tuple[str, str]) -> None:
    create = ("table", "create", "profiles", "--model", "stream")
    assert run(*create, "--set", "mode=latest", *to).exit_code == 0
    other = run(*create, "--set", "mode=log", *to)
    assert (other.exit_code, "differs: mode is latest, not log" in other.stderr) == (1, True)
    for value in ("Berlin", "Bergen"):
        assert run("stream", "append", "profiles", value, "--key", "user:7", *to).exit_code == 0
    assert run("stream", "get", "profiles", "user:7", *to).stdout == "Bergen\n"
    (one,) = found(run("stream", "get", "profiles", "user:7", "--json", *to))
    assert (one["key"], one["type"], one["value"]) == ("user:7", "string", "Bergen")
    words = ("stream", "read", "profiles", "--subscriber", "cache", *to)
    assert values(run(*words, "--json")) == ["Bergen"]
    gone = run("stream", "delete", "profiles", "user:7", "nobody", "--json", *to)
    assert found(gone) == [{"table": "profiles", "deleted": ["user:7"], "missing": ["nobody"]}]
    assert gone.exit_code == 1
    assert run(*words).stdout.rstrip("\n").split("\t")[2:] == ["user:7", "deleted", ""]
    assert run("stream", "get", "profiles", "user:7", *to).exit_code == 1
    (tombstone,) = found(run("stream", "tail", "profiles", "--json", *to))
    assert (tombstone["deleted"], tombstone["type"]) == (True, None)


# -- subscribers ----------------------------------------------------------------------------------


@pytest.mark.req("JQ-02")
def test_subscribers_are_moved_by_hand(to: tuple[str, str], db: fjord.Database) -> None:
    stream = db.stream("moved")
    last = stream.append_many([b"1", b"2", b"3"])
    stream.subscriber("a")
    stream.subscriber("b", start="end").sleep()
    listed = found(run("stream", "subscribers", "moved", "--lag", "--json", *to))
    assert [(one["name"], one["asleep"], one["lag"]) for one in listed] == [
        ("a", False, 3),
        ("b", True, 0),
    ]
    sought = run("stream", "seek", "moved", "a", "end", "--json", *to)
    assert found(sought)[0]["seq"] >= last
    assert run("stream", "seek", "moved", "b", str(last), *to).exit_code == 0
    listed = found(run("stream", "subscribers", "moved", "--lag", "--json", *to))
    assert [one["lag"] for one in listed] == [0, 1]
    read = ("stream", "read", "moved", "--subscriber", "c", "--json", *to)
    first, *rest = found(run(*read, "--no-ack"))
    acked = run("stream", "ack", "moved", "c", str(first["seq"]), "--json", *to)
    assert found(acked) == [{"table": "moved", "name": "c", "seq": first["seq"]}]
    assert (found(run(*read)), found(run(*read))) == (rest, [])
    mistyped = run("stream", "ack", "moved", "nobody", "1", *to)
    assert (mistyped.exit_code, "has no subscriber nobody" in mistyped.stderr) == (1, True)
    assert run("stream", "unsubscribe", "moved", "a", *to).exit_code == 0
    assert [one.name for one in stream.subscribers()] == ["b", "c"]


# -- what is wrong --------------------------------------------------------------------------------


def test_a_directory_is_read_beside_its_daemon(daemon: Daemon, db: fjord.Database) -> None:
    db.stream("beside").append_many(["a", "b"])
    data = ("--data", str(daemon.path))
    assert values(run("stream", "tail", "beside", "-n", "1", "--json", *data)) == ["b"]
    assert values(run("stream", "read", "beside", "--json", *data)) == ["a", "b"]
    date = ("--start", "2026-01-31T12:00:00Z")
    for words in (("append", "beside", "c"), ("read", "beside", *date)):
        refused = run("stream", *words, *data)
        assert (refused.exit_code, "--to" in refused.stderr) == (2, True)
