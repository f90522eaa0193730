"""`fjord kv` against a real daemon and a real directory.

Starting Python takes longer than what is tested, so most calls run inside the test's process.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fjord
from fjord import limits
from fjord.cli.arguments import TypeName
from fjord.cli.commands import app
from fjord.client.entries import Key
from fjord.values import Type, Value
from tests.acceptance.daemon import FJORD, Daemon


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("kv") / "data") as one:
        yield one


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    returncode: int
    stdout: bytes
    stderr: bytes


def kv(*words: str) -> Done:
    result = CliRunner().invoke(app, ["kv", *words])
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return Done(result.exit_code, result.stdout_bytes, result.stderr_bytes)


def process(*words: str) -> Done:
    done = subprocess.run([*FJORD, "kv", *words], capture_output=True, check=False, timeout=60)
    assert b"Traceback" not in done.stderr
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.req("FJ-01", "FJ-50")
def test_a_value_is_set_got_and_deleted(daemon: Daemon) -> None:
    to = ("--to", daemon.url, "--table", "settings")
    assert process("set", "greeting", "hello", *to).returncode == 0
    assert process("get", "greeting", *to).stdout == b"hello\n"
    assert process("delete", "greeting", *to).returncode == 0
    gone = process("get", "greeting", *to)
    assert gone.returncode == 1
    assert b"table settings has no key greeting" in gone.stderr


# What takes long to load, and what no short command needs.
HEAVY = ("asyncio", "pyarrow", "pyspark", "pydantic", "rich", "fjord.engine", "fjord.server")
OTHER_NOUNS = ("fjord.cli.jobs", "fjord.cli.kestrel", "fjord.cli.pipelines", "fjord.sql")


def test_get_loads_nothing_that_it_does_not_need(daemon: Daemon) -> None:
    """The start is most of what a short command takes."""
    assert kv("set", "quick", "yes", "--to", daemon.url).returncode == 0
    code = "import atexit, sys; atexit.register(lambda: print(*sys.modules)); "
    code += "from fjord import cli; cli.main()"
    words = [sys.executable, "-c", code, "kv", "get", "quick", "--to", daemon.url]
    done = subprocess.run(words, capture_output=True, check=True, timeout=60)
    value, modules = done.stdout.decode().splitlines()
    assert value == "yes"
    assert "fjord.cli.kv" in modules.split()
    assert [one for one in (*HEAVY, *OTHER_NOUNS) if one in modules.split()] == []


@pytest.mark.parametrize(
    ("type_", "text", "shown", "value"),
    [
        ("integer", "-5", b"-5\n", -5),
        ("float", "0.5", b"0.5\n", 0.5),
        ("boolean", "true", b"true\n", True),
        ("buffer", "raw", b"raw", {"base64": "cmF3"}),
        ("float", "-inf", b"-inf\n", "-inf"),
        ("float", "nan", b"nan\n", "nan"),
        ("void", "-", b"\n", None),
    ],
)
def test_types_are_kept(daemon: Daemon, type_: str, text: str, shown: bytes, value: object) -> None:
    assert kv("set", "--type", type_, "--to", daemon.url, "--", "key", text).returncode == 0
    assert kv("get", "key", "--to", daemon.url).stdout == shown
    described = json.loads(kv("get", "key", "--json", "--to", daemon.url).stdout)
    assert (described["type"], described["value"]) == (type_, value)
    assert described["expires_at"] is None


def test_a_directory_is_used_without_a_daemon_and_read_beside_one(
    tmp_path: Path, daemon: Daemon
) -> None:
    assert kv("set", "key", "value", "--data", str(tmp_path / "own")).returncode == 0
    assert kv("get", "key", "--data", str(tmp_path / "own")).stdout == b"value\n"
    kv("set", "shared", "yes", "--to", daemon.url)
    assert kv("get", "shared", "--data", str(daemon.path)).stdout == b"yes\n"
    refused = kv("set", "shared", "no", "--data", str(daemon.path))
    assert refused.returncode == 2
    assert b"writes to" in refused.stderr
    assert b"use --to instead of --data" in refused.stderr
    assert b"read_only" not in refused.stderr


def test_what_is_wrong_is_said(daemon: Daemon) -> None:
    assert b"fjord serve" in kv("get", "k", "--to", "fjord://127.0.0.1:1").stderr
    assert b"BAD_NAME" in kv("set", "k", "x", "--table", "../x", "--to", daemon.url).stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("set", "k", "x", "--type", "integer"), b"x is not a valid integer"),
        (("set", "k", "x", "--type", "intx"), b"'boolean'"),
        (("set", "k", "x", "--expires-at", "soon"), b"soon is not a date"),
        (("set", "k", "--jsno"), b"No such option: --jsno"),
        (("set", "k", "-5x"), b"No such option: -5x"),
        (("set", "k", "--also", "--jsno"), b"VALUE"),
        (("add", "k", "many"), b"many is not a number"),
        (("get", "k", "--to", "http://127.0.0.1:1"), b"not a valid address"),
        (("get", "k", "--to", "127.0.0.1:99999"), b"out of range"),
    ],
)
def test_wrong_use_ends_with_2(words: tuple[str, ...], said: bytes) -> None:
    done = kv(*words)
    assert done.returncode == 2
    assert said in done.stderr


def test_what_begins_with_a_dash_is_a_value_if_it_is_a_number_or_stands_behind_two(
    daemon: Daemon,
) -> None:
    to = ("--to", daemon.url, "--table", "dashes")
    for value in ("-5", "-2.5", "-.5", "-1e3", "-"):
        assert kv("set", "key", value, *to).returncode == 0
        assert kv("get", "key", *to).stdout == f"{value}\n".encode()
    assert kv("set", *to, "--also=--other", "--", "key", "--jsno").returncode == 0
    assert kv("get", "key", *to).stdout == b"--jsno\n"
    assert kv("get", *to, "--", "--other").stdout == b"--jsno\n"


def test_types_on_the_command_line_are_the_types_of_values() -> None:
    assert [one.value for one in TypeName] == [one.name.lower() for one in Type]


def test_the_date_of_the_example_is_said_to_be_near() -> None:
    help_ = " ".join(kv("set", "--help").stdout.decode().split())
    assert "within 30 days" in help_.replace("\u2502 ", "")
    assert timedelta(microseconds=limits.EXPIRY_AHEAD_US_MAX) == timedelta(days=30)


# -- changing, listing, watching ------------------------------------------------------------------


@pytest.mark.req("FJ-35", "FJ-50")
def test_values_are_changed_where_they_are(daemon: Daemon) -> None:
    to = ("--to", daemon.url, "--table", "changes")
    kv("set", "count", "-5", "--type", "integer", *to)
    assert kv("add", "count", "7", *to).stdout == b"2\n"
    assert kv("add", "count", "-3", *to).stdout == b"-1\n"
    kv("set", "on", "true", "--type", "boolean", *to)
    assert kv("flip", "on", *to).stdout == b"false\n"
    kv("set", "note", "hello world", *to)
    assert json.loads(kv("truncate", "note", "5", "--json", *to).stdout) == {
        "key": "note",
        "value": "hello",
    }
    assert kv("rename", "note", "text", *to).returncode == 0
    assert kv("get", "text", *to).stdout == b"hello\n"
    refused = kv("rename", "text", "count", *to)
    assert refused.returncode == 1
    assert b"EXISTS" in refused.stderr
    assert b"TYPE_MISMATCH" in kv("flip", "count", *to).stderr
    for words in (("flip", "gone"), ("rename", "gone", "new"), ("add", "gone", "1")):
        missing = kv(*words, *to)
        assert missing.returncode == 1
        assert b"has no key gone" in missing.stderr


@pytest.mark.req("FJ-30", "FJ-31", "FJ-50")
def test_options_of_set_are_kept_and_touch_extends(daemon: Daemon) -> None:
    to = ("--to", daemon.url, "--table", "options")
    done = kv("set", "key", "v", "--ttl", "60", "--also", "other", "--no-overwrite", "--json", *to)
    assert json.loads(done.stdout) == {"table": "options", "key": "key"}
    assert b"EXISTS" in kv("set", "key", "v", "--no-overwrite", *to).stderr
    entry = json.loads(kv("get", "other", "--json", *to).stdout)
    assert (entry["value"], entry["ttl"], entry["locked"]) == ("v", 60.0, False)
    touched = json.loads(kv("touch", "key", "--ttl", "3600", "--json", *to).stdout)
    assert touched["expires_at"] > entry["expires_at"]
    assert kv("touch", "none", *to).returncode == 1
    assert kv("set", "late", "v", "--expires-at", "2020-01-01T00:00:00Z", *to).returncode == 1


@pytest.mark.req("FJ-45", "FJ-50")
def test_keys_are_listed_in_order_and_picked(daemon: Daemon) -> None:
    to = ("--to", daemon.url, "--table", "listed")
    with fjord.connect(daemon.url) as db:
        rows: dict[Key, Value] = {
            "user:1": 1,
            "user:2": True,
            "user:x": "a\tb\nc",
            b"\xff": b"\x00z",
        }
        db.kv("listed").set_many(rows)
    lines = kv("list", *to).stdout.splitlines()
    assert lines == [
        b"user:1\tinteger\t1",
        b"user:2\tboolean\ttrue",
        b"user:x\tstring\ta\\tb\\nc",
        b"\\udcff\tbuffer\t\\x00z",
    ]
    assert kv("list", "--match", r"^user:\d$", "--limit", "1", *to).stdout.splitlines() == lines[:1]
    assert kv("list", "--prefix", "user:", *to).stdout.splitlines() == lines[:3]
    assert (
        kv("list", "--from", "user:2", "--until", "user:x", *to).stdout.splitlines() == lines[1:2]
    )
    found = [json.loads(line) for line in kv("list", "--json", *to).stdout.splitlines()]
    assert [entry["key"] for entry in found] == ["user:1", "user:2", "user:x", {"base64": "/w=="}]
    assert found[3]["value"] == {"base64": "AHo="}
    assert b"BAD_REGEX" in kv("list", "--match", "(", *to).stderr


def test_a_list_on_a_terminal_has_columns_with_names(daemon: Daemon) -> None:
    with fjord.connect(daemon.url) as db:
        db.kv("terminal").set("key", "[bold]value[/bold]")
    reader, writer = pty.openpty()
    words = [*FJORD, "kv", "list", "--table", "terminal", "--to", daemon.url]
    done = subprocess.run(words, stdout=writer, check=False, timeout=60)
    os.close(writer)
    shown = os.read(reader, 10_000).decode()
    os.close(reader)
    assert done.returncode == 0
    for word in ("key", "type", "value", "string", "[bold]value[/bold]"):
        assert word in shown


@pytest.mark.req("FJ-44", "FJ-50")
def test_changes_are_watched_until_ctrl_c(daemon: Daemon) -> None:
    words = [*FJORD, "kv", "watch", "a", "b", "--table", "watched", "--json", "--to", daemon.url]
    watch = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watch.stdout is not None
    assert watch.stderr is not None
    assert "watching" in watch.stderr.readline()
    with fjord.connect(daemon.url) as db:
        table = db.kv("watched")
        table.set("a", 1)
        first = json.loads(watch.stdout.readline())
        table.set("c", 2)
        table.delete("a")
        second = json.loads(watch.stdout.readline())
    watch.send_signal(signal.SIGINT)
    rest, errors = watch.communicate(timeout=60)
    assert (watch.returncode, rest, errors) == (0, "", "")
    assert (first["key"], first["value"], first["type"], first["deleted"]) == (
        "a",
        1,
        "integer",
        False,
    )
    assert (second["key"], second["value"], second["deleted"]) == ("a", None, True)


def test_a_watch_ends_with_an_error_when_the_daemon_does(tmp_path: Path) -> None:
    with Daemon(tmp_path / "data") as own:
        words = [*FJORD, "kv", "watch", "a", "--to", own.url]
        watch = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert watch.stderr is not None
        assert "watching" in watch.stderr.readline()
        own.kill()
        _, errors = watch.communicate(timeout=60)
        assert watch.returncode == 1
        assert "listen again" in errors
        own.start()


def test_every_verb_has_an_example(daemon: Daemon) -> None:
    verbs = ["set", "get", "delete", "add", "flip", "truncate", "rename", "touch", "list", "watch"]
    for verb in verbs:
        assert f"Example: fjord kv {verb}".encode() in kv(verb, "--help").stdout
