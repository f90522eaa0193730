"""Offsets: one text for one place, and a clear word about everything else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fjord.errors import FjordError
from fjord.spark import progress
from fjord.spark.progress import Offset, Publication

EPOCH = "0123456789abcdef" * 2
PUBLICATION = Publication(server="fjord://h:1", table="events", name="spark", epoch=7)


def test_the_text_is_fixed() -> None:
    made = progress.encode(Offset(seq=1234, epoch=EPOCH))
    assert json.dumps(made) == f'{{"e": {{"0": "{EPOCH}"}}, "s": {{"0": 1234}}, "v": 1}}'


@pytest.mark.parametrize(
    "offset",
    [
        Offset(seq=0),
        Offset(seq=2**63 - 1, epoch=EPOCH),
        Offset(seq=5, epoch=EPOCH, publication=PUBLICATION),
    ],
)
def test_there_and_back_in_the_order_of_names(offset: Offset) -> None:
    made = progress.encode(offset)
    assert progress.decode(made) == offset
    assert progress.decode(json.dumps(made)) == offset
    assert json.dumps(made) == json.dumps(made, sort_keys=True)
    assert "." not in json.dumps({**made, "p": {}})


GOOD: dict[str, Any] = {"e": {"0": EPOCH}, "s": {"0": 1}, "v": 1}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("{", "it is not JSON"),
        ("[]", "it is not an object"),
        ({**GOOD, "v": 2}, "its version is 2, and this version of Fjord knows 1"),
        ({"e": {"0": ""}, "s": {"0": 1}}, "its version is None"),
        ({**GOOD, "x": 1}, "unknown members: x"),
        ({**GOOD, "s": 5}, "its member s must have only the shard 0"),
        ({**GOOD, "s": {"0": 1, "1": 1}}, "its member s must have only the shard 0"),
        ({**GOOD, "s": {"0": 1.0}}, "1.0 is not a seq"),
        ({**GOOD, "s": {"0": True}}, "True is not a seq"),
        ({**GOOD, "s": {"0": -1}}, "-1 is not a seq"),
        ({**GOOD, "e": {"0": "xyz"}}, "'xyz' is not an epoch"),
        ({**GOOD, "e": {"0": EPOCH.upper()}}, "is not an epoch"),
        ({**GOOD, "e": {"0": None}}, "None is not an epoch"),
        ({**GOOD, "p": {"name": "a"}}, "its member p names no subscriber"),
        (
            {**GOOD, "p": {"epoch": "7", "name": "a", "server": "s", "table": "t"}},
            "its member p.epoch is of the wrong type",
        ),
    ],
)
def test_what_is_no_offset_is_named(given: Any, problem: str) -> None:
    with pytest.raises(FjordError, match=problem) as caught:
        progress.decode(given)
    assert "its own checkpoint" in str(caught.value)
