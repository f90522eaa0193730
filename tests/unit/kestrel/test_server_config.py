"""What a configuration says of the server, under Kestrel's names."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from fjord.errors import UsageError
from fjord.kestrel import config
from fjord.kestrel.config import ServerConfig, Status


def test_what_is_built_in_is_what_kestrel_has() -> None:
    settings, rest = config.read_server({"default": {}, "what": 1})
    assert rest == {"default": {}, "what": 1}
    assert dataclasses.asdict(settings) == {
        "open_max": 1,
        "idle_ms": None,
        "sweep_ms": None,
        "status_file": None,
        "default_status": Status.UP,
        "grace_ms": 0,
        "refuse_writes_over": None,
        "refuse_reads_over": None,
        "ignored": (),
    }


def test_every_field_has_a_name_of_kestrel() -> None:
    fields = {one.name for one in dataclasses.fields(ServerConfig)} - {"ignored"}
    assert {field for field, _ in config._SERVER_NAMES.values()} == fields


def test_names_are_read() -> None:
    settings, rest = config.read_server(
        {
            "maxOpenTransactions": 100,
            "clientTimeout": None,
            "expirationTimerFrequency": 1000,
            "statusFile": "/run/status",
            "defaultStatus": "ReadOnly",
            "statusChangeGracePeriod": 0,
            "connectionLimitRefuseWrites": 0,
            "connectionLimitRefuseReads": 7,
        }
    )
    assert rest == {}
    assert settings == ServerConfig(
        open_max=100,
        sweep_ms=1000,
        status_file="/run/status",
        default_status=Status.READONLY,
        refuse_writes_over=0,
        refuse_reads_over=7,
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"maxOpenTransactions": 0}, "from 1 to"),
        ({"maxOpenTransactions": True}, "from 1 to"),
        ({"statusChangeGracePeriod": -1}, "from 0 to"),
        ({"statusFile": "status"}, "whole path"),
        ({"statusFile": "/run/"}, "whole path"),
        ({"statusFile": 3}, "whole path"),
        ({"defaultStatus": "down"}, "up, readonly, quiescent"),
        ({"defaultStatus": 1}, "up, readonly, quiescent"),
    ],
)
def test_what_a_server_cannot_have_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        config.read_server(given)


def test_what_changes_nothing_is_told_of() -> None:
    settings, _ = config.read_server(dict.fromkeys(config._IGNORED, 1))
    queues = config.read(
        {
            "default": {"whiteListClientIdForDequeue": ["a"]},
            "queues": {"q": {"whiteListClientIdForEnqueue": ["b"]}},
        }
    )
    told = config.warnings(settings, queues)
    assert len(told) == len(config._IGNORED) + 2
    assert "queuePath changes nothing: --dir says where the queues are" in told
    assert told[-1].startswith("whiteListClientIdForEnqueue is not looked at")
    assert config.warnings(ServerConfig(), config.Configuration()) == []


def test_every_name_is_on_its_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "kestrel.md").read_text()
    known = [*config._NAMES, *config._SERVER_NAMES, *config._IGNORED]
    assert [name for name in known if f"`{name}`" not in page] == []
