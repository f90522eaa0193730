from __future__ import annotations

import pytest

from fjord.client.jobs import records
from fjord.columns import Strings
from fjord.commands import CountJobs, Numbers
from fjord.errors import RemoteProtocolError
from tests.unit.client.job_samples import NOW
from tests.unit.client.scripted import NOW_US

GENERATIONS = Numbers(
    names=Strings.of(
        [
            b"waiting",
            *(
                b"generation.%d.%s" % (number, name)
                for number in (2, 3)
                for name in (b"began_us", b"first_row", b"schema", b"jobs")
            ),
        ]
    ),
    values=(3, NOW_US, 7, 1, 3, NOW_US, 9, 4, 0),
)


def numbers(*names: bytes) -> Numbers:
    return Numbers(names=Strings.of(names), values=[1] * len(names))


@pytest.mark.req("SJ-18")
def test_generations_are_read_in_the_order_of_their_numbers() -> None:
    call = records.generations("t")
    assert call.command == CountJobs(table="t", generations=True)
    names, values = GENERATIONS.names.rows(), list(GENERATIONS.values)
    turned = Numbers(names=Strings.of(names[::-1]), values=values[::-1])
    two, three = call.result(turned)
    assert call.result(GENERATIONS) == [two, three]
    assert (two.number, two.began_at, two.first_row, two.schema, two.jobs) == (2, NOW, 7, 1, 3)
    assert (two.is_current, three.is_current) == (False, True)


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (numbers(b"generation.1.jobs"), "without began_us"),
        (numbers(b"generation.one.jobs"), "a generation 'one'"),
        (numbers(b"generation."), "a generation ''"),
        (numbers(b"generation.\xff.jobs"), "not UTF-8"),
    ],
)
def test_numbers_that_make_no_generation_are_the_peers_mistake(reply: Numbers, text: str) -> None:
    with pytest.raises(RemoteProtocolError, match=text):
        records.generations("t").result(reply)
