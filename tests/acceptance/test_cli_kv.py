"""`fjord kv` in real processes, against a daemon and against a directory."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.daemon import FJORD, Daemon


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("kv") / "data") as one:
        yield one


def kv(*words: str) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run([*FJORD, "kv", *words], capture_output=True, check=False, timeout=60)
    assert b"Traceback" not in done.stderr
    return done


@pytest.mark.req("FJ-50")
def test_a_value_is_set_got_and_deleted(daemon: Daemon) -> None:
    to = ("--to", daemon.url, "--table", "settings")
    assert kv("set", "greeting", "hello", *to).returncode == 0
    assert kv("get", "greeting", *to).stdout == b"hello\n"
    assert kv("delete", "greeting", *to).returncode == 0
    gone = kv("get", "greeting", *to)
    assert gone.returncode == 1
    assert b"table settings has no key greeting" in gone.stderr


@pytest.mark.parametrize(
    ("type_", "text", "shown", "value"),
    [
        ("integer", "-5", b"-5\n", -5),
        ("float", "0.5", b"0.5\n", 0.5),
        ("boolean", "true", b"true\n", True),
        ("buffer", "raw", b"raw", "cmF3"),
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


def test_what_is_wrong_is_said(daemon: Daemon) -> None:
    assert b"is no integer" in kv("set", "k", "x", "--type", "integer").stderr
    assert b"types are void" in kv("set", "k", "x", "--type", "number").stderr
    assert b"fjord serve" in kv("get", "k", "--to", "fjord://127.0.0.1:1").stderr
    assert b"BAD_NAME" in kv("set", "k", "x", "--table", "../x", "--to", daemon.url).stderr
