"""`fjord stream` against a real daemon.

Starting Python takes longer than what is tested, so most calls run inside the test's process.
"""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import fjord
from fjord.cli.commands import app
from tests.acceptance.daemon import FJORD, Daemon


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("streams") / "data") as one:
        yield one


@pytest.fixture
def to(daemon: Daemon) -> tuple[str, str]:
    return ("--to", daemon.url)


@pytest.fixture
def db(daemon: Daemon) -> Iterator[fjord.Database]:
    with fjord.connect(daemon.url) as one:
        yield one


def run(*words: str, text: str | bytes = "") -> Result:
    result = CliRunner().invoke(app, list(words), input=text)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result


def found(result: Result) -> list[dict[str, Any]]:
    """Returns the objects that a command printed."""
    return [json.loads(line) for line in result.stdout.splitlines()]


def values(result: Result) -> list[Any]:
    return [one["value"] for one in found(result)]


def process(*words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*FJORD, *words], capture_output=True, text=True, check=False, timeout=60, input=text
    )
    assert "Traceback" not in done.stderr
    return done


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
    """In processes of their own, as a person would type it."""
    assert process("stream", "append", "life", "signed up", "--key", "user:7", *to).returncode == 0
    words = ("stream", "read", "life", "--subscriber", "billing", *to)
    seq, _, *rest = process(*words).stdout.rstrip("\n").split("\t")
    assert rest == ["user:7", "string", "signed up"]
    assert process(*words).stdout == ""
    assert process("stream", "append", "life", *to, text="paid\nleft\n").returncode == 0
    assert [line.split("\t")[-1] for line in process(*words).stdout.splitlines()] == [
        "paid",
        "left",
    ]
    late = process("stream", "read", "life", "--subscriber", "late", "-n", "2", "--json", *to)
    assert [json.loads(line)["value"] for line in late.stdout.splitlines()] == ["signed up", "paid"]
    listed = process("stream", "subscribers", "life", "--lag", *to).stdout.splitlines()
    assert [line.split("\t")[0::4] for line in listed] == [["billing", "0"], ["late", "1"]]
    assert process("stream", "seek", "life", "billing", seq, *to).returncode == 0
    again = process(*words, "--json").stdout.splitlines()
    assert [json.loads(line)["value"] for line in again] == ["signed up", "paid", "left"]


def test_values_are_what_their_type_says(to: tuple[str, str]) -> None:
    done = run("stream", "append", "typed", "-5", "7", "--type", "integer", "--json", *to)
    (told,) = found(done)
    assert (told["table"], told["appended"], told["bad"]) == ("typed", 2, 0)
    run("stream", "append", "typed", "raw", "--type", "buffer", *to)
    read = found(run("stream", "read", "typed", "--json", *to))
    assert [(one["type"], one["value"]) for one in read] == [
        ("integer", -5),
        ("integer", 7),
        ("buffer", {"base64": "cmF3"}),
    ]
    assert [one["seq"] for one in read[:2]] == [told["seq"] - 1, told["seq"]]
    assert (read[0]["key"], read[0]["deleted"]) == ("", False)
    assert abs(datetime.fromisoformat(read[0]["at"]) - datetime.now(UTC)) < timedelta(hours=1)
    bad = run("stream", "append", "typed", "x", "--type", "integer", *to)
    assert (bad.exit_code, "x is not a valid integer" in bad.stderr) == (2, True)


def test_json_lines_are_appended_and_bad_ones_told(to: tuple[str, str]) -> None:
    given = [
        '{"key": "a", "value": "x"}',
        "",
        "no json",
        '{"value": {"base64": "AHo="}}',
        '{"key": "c", "vlaue": 1}',
        '{"key": "' + "k" * 2000 + '", "value": 1}',
        '{"key": {"base64": "/w=="}, "value": 2.5}',
        "{}",
    ]
    words = ("stream", "append", "lines", "--json-lines", "--key", "usual", "--json", *to)
    done = run(*words, text="\n".join(given))
    (told,) = found(done)
    assert (done.exit_code, told["appended"], told["bad"]) == (1, 4, 3)
    numbers = [line.split(":")[0] for line in done.stderr.splitlines()]
    assert sorted(numbers) == ["line 3", "line 5", "line 6"]
    assert "a message has no vlaue; it has key, value" in done.stderr
    assert "KEY_TOO_LONG" in done.stderr
    read = found(run("stream", "read", "lines", "--json", *to))
    assert [(one["key"], one["value"]) for one in read] == [
        ("a", "x"),
        ("usual", {"base64": "AHo="}),
        ({"base64": "/w=="}, 2.5),
        ("usual", None),
    ]
    assert read[-1]["seq"] == told["seq"]
    both = run("stream", "append", "lines", "value", "--json-lines", *to)
    assert (both.exit_code, "without values" in both.stderr) == (2, True)


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


def test_lines_are_appended_as_they_come(to: tuple[str, str], db: fjord.Database) -> None:
    db.create_stream("pipe")
    one = started("stream", "append", "pipe", "--json", *to)
    assert one.stdin is not None
    reader = db.stream("pipe").reader()
    for text in ("a", "b"):
        one.stdin.write(f"{text}\n")
        one.stdin.flush()
        assert [message.value for message in reader.read(wait=50)] == [text]
    out, _ = one.communicate(timeout=60)
    assert (one.returncode, json.loads(out)["appended"]) == (0, 2)


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


def test_a_subscriber_stays_unless_it_is_acknowledged(
    to: tuple[str, str], db: fjord.Database
) -> None:
    db.stream("marks").append_many([b"1", b"2", b"3"])
    words = ("stream", "read", "marks", "--subscriber", "s", "--json", *to)
    assert len(found(run(*words, "--no-ack"))) == 3
    (first, _) = found(run(*words, "--no-ack", "-n", "2"))
    moved = run("stream", "ack", "marks", "s", str(first["seq"]), "--json", *to)
    assert found(moved) == [{"table": "marks", "name": "s", "seq": first["seq"]}]
    assert len(found(run(*words))) == 2
    assert found(run(*words)) == []
    far = run("stream", "ack", "marks", "s", str(2**62), *to)
    assert (far.exit_code, "BAD_RANGE" in far.stderr) == (1, True)


def wait_parked(db: fjord.Database) -> None:
    """Returns when a request of somebody else waits; between two looks it waits for nothing."""
    quiet = db.create_stream("quiet").reader()
    for _ in range(600):
        if db.stats()["parked_waits"]:
            return
        assert len(quiet.read(wait=0.1)) == 0
    pytest.fail("nobody waits")


def test_a_wait_ends_with_an_append(to: tuple[str, str], db: fjord.Database) -> None:
    db.create_stream("waits")
    one = started("stream", "read", "waits", "--wait", "60", "--json", *to)
    wait_parked(db)
    db.stream("waits").append("came")
    out, _ = one.communicate(timeout=60)
    assert (one.returncode, json.loads(out)["value"]) == (0, "came")


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


def test_the_last_are_found_among_other_tables(to: tuple[str, str], db: fjord.Database) -> None:
    stream = db.stream("sparse")
    stream.append("old")
    for number in range(20):
        db.kv("between").set_many({f"k{number}-{other}": other for other in range(100)})
        stream.append(number)
    assert values(run("stream", "tail", "sparse", "-n", "3", "--json", *to)) == [17, 18, 19]
    assert len(found(run("stream", "tail", "sparse", "-n", "100", "--json", *to))) == 21
    assert run("stream", "tail", "sparse", "-n", "0", *to).stdout == ""


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


def test_a_message_without_a_key_is_refused(to: tuple[str, str]) -> None:
    run("table", "create", "keyed", "--model", "stream", "--set", "mode=latest", *to)
    refused = run("stream", "append", "keyed", "value", *to)
    assert (refused.exit_code, "EMPTY_KEY" in refused.stderr) == (1, True)


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ("history=false", "a stream of mode log has history"),
        ("block_rows=0", "block_rows is a whole number from 1"),
        ("retention=-1", "-1"),
        ("mode=newest", "mode is log or latest"),
    ],
)
def test_settings_that_cannot_be_meant_are_wrong_use(
    to: tuple[str, str], setting: str, reason: str
) -> None:
    done = run("table", "create", "never", "--model", "stream", "--set", setting, *to)
    assert done.exit_code == 2
    assert reason in done.stderr
    assert run("table", "describe", "never", *to).exit_code == 1


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
    assert run("stream", "unsubscribe", "moved", "a", *to).exit_code == 0
    assert [one.name for one in stream.subscribers()] == ["b"]


def test_who_reads_under_a_name_that_was_sought_is_told(
    to: tuple[str, str], db: fjord.Database
) -> None:
    stream = db.stream("sought")
    stream.append("old")
    one = started("stream", "read", "sought", "--subscriber", "s", "--follow", "--json", *to)
    assert [message["value"] for message in lines(one, 1)] == ["old"]
    while not stream.subscribers()[0].position:
        pass  # its acknowledgement is on its way
    assert run("stream", "seek", "sought", "s", "beginning", *to).exit_code == 0
    stream.append("new")
    out, err = one.communicate(timeout=60)
    assert (one.returncode, json.loads(out)["value"]) == (1, "new")
    assert "STALE_EPOCH" in err
    again = run("stream", "read", "sought", "--subscriber", "s", "--json", *to)
    assert values(again) == ["old", "new"]


@pytest.mark.parametrize("words", [("seek", "t", "nobody", "end"), ("ack", "t", "nobody", "1")])
def test_a_name_that_is_mistyped_makes_no_subscriber(
    to: tuple[str, str], db: fjord.Database, words: tuple[str, ...]
) -> None:
    db.stream("t").append(b"1")
    done = run("stream", *words, *to)
    assert done.exit_code == 1
    assert "t has no subscriber nobody" in done.stderr
    assert db.stream("t").subscribers() == []


# -- what is wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["read", "tail", "subscribers"])
def test_a_table_that_is_not_there_is_said(to: tuple[str, str], verb: str) -> None:
    done = run("stream", verb, "mispelt", *to)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "mispelt" in done.stderr


@pytest.mark.parametrize("where", ["soon", "2026-01-31T12:00:00", "-1", ""])
def test_a_place_that_is_none_is_wrong_use(to: tuple[str, str], where: str) -> None:
    done = run("stream", "seek", "t", "s", "--", where)
    assert (done.exit_code, "beginning" in done.stderr) == (2, True)


def test_a_table_of_another_kind_is_refused(to: tuple[str, str], db: fjord.Database) -> None:
    db.kv("settings").set("a", 1)
    for words in (("append", "settings", "x"), ("read", "settings"), ("tail", "settings")):
        done = run("stream", *words, *to)
        assert (done.exit_code, "WRONG_KIND" in done.stderr) == (1, True)


def test_a_daemon_that_is_not_there_is_told() -> None:
    done = run("stream", "tail", "t", "--to", "fjord://127.0.0.1:1")
    assert (done.exit_code, "fjord serve" in done.stderr) == (1, True)


def test_streams_are_tables(to: tuple[str, str], db: fjord.Database) -> None:
    db.create_stream("shown", block_rows=5).append(b"1")
    db.stream("shown").subscriber("s")
    kinds = {one["name"]: one["kind"] for one in found(run("table", "list", "--json", *to))}
    assert kinds["shown"] == "stream"
    (what,) = found(run("table", "describe", "shown", "--count", "--json", *to))
    assert (what["kind"], what["settings"]) == ("stream", '{"block_rows":5}')
    assert (what["subscribers"], what["blocks"]) == (1, 0)


def test_a_directory_is_used_without_a_daemon(tmp_path: Path) -> None:
    data = ("--data", str(tmp_path / "data"))
    assert run("stream", "append", "own", "a", "b", *data).exit_code == 0
    assert values(run("stream", "tail", "own", "--json", *data)) == ["a", "b"]
    read = run("stream", "read", "own", "--subscriber", "s", "-n", "1", "--json", *data)
    assert values(read) == ["a"]
    (one,) = found(run("stream", "subscribers", "own", "--lag", "--json", *data))
    assert (one["name"], one["lag"]) == ("s", 1)


def test_a_directory_is_read_beside_its_daemon(daemon: Daemon, db: fjord.Database) -> None:
    db.stream("beside").append_many(["a", "b"])
    data = ("--data", str(daemon.path))
    assert values(run("stream", "tail", "beside", "-n", "1", "--json", *data)) == ["b"]
    assert values(run("stream", "read", "beside", "--json", *data)) == ["a", "b"]
    date = ("--start", "2026-01-31T12:00:00Z")
    for words in (("append", "beside", "c"), ("read", "beside", *date)):
        refused = run("stream", *words, *data)
        assert (refused.exit_code, "--to" in refused.stderr) == (2, True)


VERBS = ["append", "read", "tail", "get", "delete"]
VERBS += ["subscribers", "seek", "ack", "unsubscribe"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_an_example(verb: str) -> None:
    assert f"fjord stream {verb}" in run("stream", verb, "--help").stdout
