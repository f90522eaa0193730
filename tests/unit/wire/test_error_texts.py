"""Error texts: a code and a sentence, there and back."""

from __future__ import annotations

import pytest

from fjord.commands import Refusal
from fjord.errors import Code
from fjord.wire import error_texts


@pytest.mark.parametrize("code", Code)
def test_every_code_comes_back(code: Code) -> None:
    for text in ("", "why: because", "\u00e9"):
        refusal = Refusal(code=code, text=text)
        assert error_texts.decode(error_texts.encode(refusal)) == refusal


@pytest.mark.parametrize("text", [b"SOMETHING_NEW: text", b"no code at all", b"\xff\xfe", b""])
def test_an_unknown_code_is_a_failure_with_its_text(text: bytes) -> None:
    expected = Refusal(code=Code.FAILED, text=text.decode(errors="replace"))
    assert error_texts.decode(text) == expected


def test_an_endless_text_is_cut_to_64_kib() -> None:
    assert len(error_texts.encode(Refusal(code=Code.BUSY, text="x" * 100_000))) == 0xFFFF


def test_a_text_that_is_no_unicode_is_sent_all_the_same() -> None:
    assert error_texts.encode(Refusal(code=Code.BUSY, text="\ud800")) == b"BUSY: ?"
