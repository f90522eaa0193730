"""Kinds of tables: names and numbers that others have written down, and their settings."""

from __future__ import annotations

import json
import pickle

import pytest

from fjord import jobs, kinds, streams
from fjord.kinds import Kind


def test_kinds_keep_their_names_and_numbers() -> None:
    assert {kind.value: kind.number for kind in Kind} == {"kv": 1, "jobs": 2, "stream": 3}
    assert {1: Kind.KV, 2: Kind.JOBS, 3: Kind.STREAM} == kinds.BY_NUMBER


@pytest.mark.parametrize("kind", list(Kind))
def test_a_kind_is_its_name_wherever_it_goes(kind: Kind) -> None:
    assert kind == kind.value
    assert f"{kind}" == kind.name.lower()
    assert json.loads(json.dumps({"kind": kind})) == {"kind": kind.value}
    assert pickle.loads(pickle.dumps(kind)) is kind


def test_settings_are_those_of_the_kind() -> None:
    assert kinds.settings_of("jobs", b'{"merge": false}') == jobs.Settings(merge=False)
    latest = streams.Settings(mode=streams.Mode.LATEST)
    assert kinds.settings_of("stream", b'{"mode": "latest"}') == latest
    assert kinds.settings_of("kv", b"") is None
    assert kinds.settings_of("of a later version", b"?") is None
    with pytest.raises(ValueError, match="merge"):
        kinds.settings_of("jobs", b'{"merge": 3}')
