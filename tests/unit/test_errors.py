"""Errors: one tree, codes that are their own names, messages that say what to do."""

from __future__ import annotations

import inspect

import pytest

from fjord import errors

ERRORS = [
    error
    for _, error in inspect.getmembers(errors, inspect.isclass)
    if issubclass(error, Exception) and error.__module__ == errors.__name__
]


def test_every_error_is_a_fjord_error_that_says_something() -> None:
    assert len(ERRORS) == 19
    for error in ERRORS:
        assert issubclass(error, errors.FjordError)
        assert error.__doc__
        assert error.__name__ in (errors.__doc__ or "")


@pytest.mark.parametrize(
    "error",
    [
        errors.ClosedError,
        errors.DirectoryInUseError,
        errors.DurabilityError,
        errors.FjordError,
        errors.UnavailableError,
        errors.UsageError,
    ],
)
def test_the_docstring_is_the_message_unless_there_is_a_better_one(
    error: type[errors.FjordError],
) -> None:
    assert str(error()) == error.__doc__
    assert str(error("this happened")) == "this happened"


@pytest.mark.parametrize(
    "error", [errors.ProtocolError, errors.LocalProtocolError, errors.RemoteProtocolError]
)
def test_a_protocol_error_carries_its_code_and_text(error: type[errors.ProtocolError]) -> None:
    raised = error(errors.Code.BAD_MAGIC, "a message begins with FJ")
    assert isinstance(raised, errors.ProtocolError)
    assert raised.code is errors.Code.BAD_MAGIC
    assert raised.text == "a message begins with FJ"
    assert str(raised) == "BAD_MAGIC: a message begins with FJ"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (errors.Code.NOT_FOUND, errors.NotFoundError),
        (errors.Code.EXISTS, errors.ExistsError),
        (errors.Code.DISK_FULL, errors.DiskFullError),
        (errors.Code.BUSY, errors.RefusedError),
    ],
)
def test_a_refusal_becomes_the_most_exact_error(
    code: errors.Code, error: type[errors.RefusedError]
) -> None:
    raised = errors.RefusedError.of(code, "why")
    assert type(raised) is error
    assert raised.code is code
    assert raised.text == "why"
    assert str(raised) == f"{code}: why"


def test_a_corruption_names_file_and_offset_and_what_to_do() -> None:
    raised = errors.CorruptionError("/data/1.seg", 64, "a checksum is wrong")
    assert (raised.path, raised.offset, raised.reason) == ("/data/1.seg", 64, "a checksum is wrong")
    text = str(raised)
    assert "/data/1.seg is damaged at byte 64: a checksum is wrong." in text
    assert "restore this file from a replica or a backup" in text
