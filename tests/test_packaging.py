"""What is installed: the lock, and a client that needs nothing but Python."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
LOCK = (ROOT / "requirements.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def locked() -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK, flags=re.MULTILINE))


def test_lock_fits_what_the_project_asks_for() -> None:
    asked = [
        Requirement(text) for extra in PROJECT["optional-dependencies"].values() for text in extra
    ]
    versions = locked() | {PROJECT["name"]: "0"}
    unfit = [
        str(requirement)
        for requirement in asked
        if not requirement.specifier.contains(versions.get(requirement.name, "0"))
    ]
    assert unfit == [], "run scripts/lock"


def test_everything_locked_has_hashes() -> None:
    entries = re.split(r"^(?=[a-z0-9-]+==)", LOCK, flags=re.MULTILINE)[1:]
    # Where no version is for all Pythons, some are locked more than once.
    names = {entry.partition("==")[0] for entry in entries}
    assert names == locked().keys()
    assert [entry.splitlines()[0] for entry in entries if "--hash=sha256:" not in entry] == []


def test_lock_names_no_address() -> None:
    assert "://" not in LOCK
    assert re.findall(r"^--.*", LOCK, flags=re.MULTILINE) == []


def test_plain_install_has_no_dependencies() -> None:
    assert PROJECT["dependencies"] == []


def test_client_imports_with_the_standard_library_only() -> None:
    code = "import fjord, fjord.aio, sys; print(fjord.connect, fjord.aio.connect)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],  # -S: nothing that is installed can be imported
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_front_end_writes_to_a_spool_with_the_standard_library_only(tmp_path: Path) -> None:
    code = """
import fjord, sys
with fjord.spool(sys.argv[1], sync="group") as spool:
    spool.jobs("pages").push("http://example.com/a", "v7", delay=5, priority=10)
    spool.jobs("pages").push_many(keys=["a", "b"])
    spool.stream("events").append_many([b"one", 2, 3.5, True, None])
    spool.kv("settings").set("theme", "dark", ttl=60)
    spool.kv("settings").delete("colour")
"""
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, str(tmp_path)],
        env={"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.glob("*.spool")
    assert file.read_bytes().count(b"\n@") == 5


def test_a_forwarder_is_started_again_for_ever() -> None:
    """It may come before the front end that makes the spool, or meet another forwarder."""
    lines = (ROOT / "packaging" / "fjord-forward.service").read_text().splitlines()
    assert {"Restart=on-failure", "StartLimitIntervalSec=0"} <= set(lines)
    assert [line for line in lines if line.startswith("RestartPreventExitStatus")] == []


@pytest.mark.req("FJ-51")
def test_the_licence_is_mit() -> None:
    assert PROJECT["license"] == "MIT"
    text = (ROOT / "LICENSE").read_text()
    assert text.startswith("MIT License")
    assert "without restriction" in text
    assert PROJECT["license-files"] == ["LICENSE"]
