"""The tables of layouts say what the codec does."""

from __future__ import annotations

from typing import get_args

from fjord.commands import Refusal, Replies, Reply
from fjord.wire import Function, reply_bodies
from fjord.wire.functions import FLAGS
from fjord.wire.layouts import ARGUMENTS, REPLY_BODIES, REQUEST_BODIES, Step


def test_every_function_above_16_has_a_layout() -> None:
    above = {function for function in Function if function > 16}
    assert set(REQUEST_BODIES) == above - {Function.BATCH}
    assert set(ARGUMENTS) <= above


def test_every_reply_with_a_body_has_a_layout() -> None:
    assert set(REPLY_BODIES) == set(get_args(Reply)) - {Replies, Refusal}
    assert set(reply_bodies.REPLY_TYPES.values()) == set(REPLY_BODIES)


def test_a_field_depends_only_on_flags_that_the_function_knows() -> None:
    for function, steps in REQUEST_BODIES.items():
        assert [one for one in steps if one.flag & ~FLAGS[function]] == []


def test_names_are_for_people() -> None:
    steps: list[Step] = [one for steps in REQUEST_BODIES.values() for one in steps]
    steps += [one for steps in REPLY_BODIES.values() for one in steps]
    assert all(step.name and step.name == step.name.lower() for step in steps)
