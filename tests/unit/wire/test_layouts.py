"""The tables of layouts say what the codec does."""

from __future__ import annotations

from typing import get_args

import pytest

from fjord.commands import InBlock, Refusal, Replies, Reply, ScannedArrow
from fjord.wire import Flag, Function, batch, reply_bodies
from fjord.wire.functions import FLAGS
from fjord.wire.layouts import ARGUMENTS, REPLY_BODIES, REQUEST_BODIES, Step


def test_every_function_above_16_has_a_layout() -> None:
    above = {function for function in Function if function > 16}
    assert set(REQUEST_BODIES) == above - set(batch.HELD)
    assert set(ARGUMENTS) <= above


def test_every_reply_with_a_body_has_a_layout() -> None:
    assert set(REPLY_BODIES) == set(get_args(Reply)) - {Replies, Refusal, InBlock}
    assert set(reply_bodies.REPLY_TYPES.values()) == set(REPLY_BODIES) - {ScannedArrow}


def test_a_field_depends_only_on_flags_that_the_function_knows() -> None:
    for function, steps in REQUEST_BODIES.items():
        assert [one for one in steps if (one.flag | one.unless) & ~FLAGS[function]] == []


@pytest.mark.parametrize(
    ("flag", "unless", "flags", "expected"),
    [
        (0, 0, 0, True),
        (0, 0, 0xFFFF, True),
        (Flag.TTL, 0, 0, False),
        (Flag.TTL, 0, Flag.TTL | Flag.DATA, True),
        (0, Flag.TTL, Flag.DATA, True),
        (0, Flag.TTL, Flag.TTL, False),
        (Flag.DATA, Flag.TTL, Flag.TTL | Flag.DATA, False),
    ],
)
def test_a_field_is_there_or_not_by_its_flags(
    flag: int, unless: int, flags: int, expected: bool
) -> None:
    assert Step("u64", "field", flag, unless).is_in(flags) is expected


def test_names_are_for_people() -> None:
    steps: list[Step] = [one for steps in REQUEST_BODIES.values() for one in steps]
    steps += [one for steps in REPLY_BODIES.values() for one in steps]
    assert all(step.name and step.name == step.name.lower() for step in steps)
