"""Errors: one tree, codes that are their own names, messages that say what to do."""

from __future__ import annotations

import inspect

import pytest

from fjord import errors
from fjord.errors import (
    ClosedError,
    Code,
    CorruptionError,
    DirectoryInUseError,
    DiskFullError,
    DurabilityError,
    ExistsError,
    FjordError,
    LocalProtocolError,
    NotFoundError,
    ProtocolError,
    RefusedError,
    RemoteProtocolError,
    UnavailableError,
    UsageError,
)

ERRORS = [
    error
    for _, error in inspect.getmembers(errors, inspect.isclass)
    if issubclass(error, Exception) and error.__module__ == errors.__name__
]


def test_every_error_is_a_fjord_error_that_says_something() -> None:
    assert len(ERRORS) == 19
    for error in ERRORS:
        assert issubclass(error, FjordError)
        assert error.__doc__
        assert error.__name__ in (errors.__doc__ or "")


@pytest.mark.parametrize(
    "error",
    [ClosedError, DirectoryInUseError, DurabilityError, FjordError, UnavailableError, UsageError],
)
def test_the_docstring_is_the_message_unless_there_is_a_better_one(error: type[FjordError]) -> None:
    assert str(error()) == error.__doc__
    assert str(error("this happened")) == "this happened"


@pytest.mark.parametrize("error", [ProtocolError, LocalProtocolError, RemoteProtocolError])
def test_a_protocol_error_carries_its_code_and_text(error: type[ProtocolError]) -> None:
    raised = error(Code.BAD_MAGIC, "a message begins with FJ")
    assert isinstance(raised, ProtocolError)
    assert raised.code is Code.BAD_MAGIC
    assert raised.text == "a message begins with FJ"
    assert str(raised) == "BAD_MAGIC: a message begins with FJ"


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (Code.NOT_FOUND, NotFoundError),
        (Code.EXISTS, ExistsError),
        (Code.DISK_FULL, DiskFullError),
        (Code.BUSY, RefusedError),
    ],
)
def test_a_refusal_becomes_the_most_exact_error(code: Code, error: type[RefusedError]) -> None:
    raised = RefusedError.of(code, "why")
    assert type(raised) is error
    assert raised.code is code
    assert raised.text == "why"
    assert str(raised) == f"{code}: why"


def test_a_corruption_names_file_and_offset_and_what_to_do() -> None:
    raised = CorruptionError("/data/1.seg", 64, "a checksum is wrong")
    assert (raised.path, raised.offset, raised.reason) == ("/data/1.seg", 64, "a checksum is wrong")
    text = str(raised)
    assert "/data/1.seg is damaged at byte 64: a checksum is wrong." in text
    assert "restore this file from a replica or a backup" in text
