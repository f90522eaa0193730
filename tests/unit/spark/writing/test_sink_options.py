"""The options of the sink: what is taken, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from fjord.errors import FjordError
from fjord.spark import options

PAGE = Path(__file__).resolve().parents[4] / "docs" / "spark.md"
SERVER = {"server": "fjord://127.0.0.1:17994"}


def test_names_are_taken_in_any_case_and_those_of_spark_are_known() -> None:
    given = {
        **SERVER,
        "TABLE": "events",
        "Kind": "KV",
        "ttl": "1.5",
        "txnid": "me",
        "txnVersion": "7",
    }
    found = options.parse_sink(given, is_stream=False)
    assert found == options.SinkOptions(
        server=SERVER["server"],
        table="events",
        kind="kv",
        ttl_us=1_500_000,
        txn_id="me",
        txn_version=7,
    )
    of_spark = {**SERVER, "checkpointlocation": "/c", "queryname": "q"}
    assert options.parse_sink(of_spark, is_stream=True).checkpoint == "/c"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        pytest.param({"server": ""}, "give the option server", id="no server"),
        pytest.param({"path": "/data"}, "through a daemon, not to the directory /data", id="path"),
        pytest.param({"tabel": "x"}, "unknown option tabel; the options are server,", id="unknown"),
        pytest.param({"startingSeq": "5"}, "unknown option startingseq", id="of the source"),
        pytest.param({"kind": "queue"}, "kind is stream, jobs, kv, not 'queue'", id="kind"),
        pytest.param({"ttl": "soon"}, "ttl is a number of seconds", id="ttl"),
        pytest.param({"ttl": "0"}, "ttl is a number of seconds", id="no ttl"),
        pytest.param({"ttl": "nan"}, "ttl is a number of seconds", id="nan"),
        pytest.param({"ttl": "1e9"}, "ttl is a number of seconds, up to 2592000", id="long ttl"),
        pytest.param({"txnId": ""}, "txnId has 1 to 128 bytes", id="empty name"),
        pytest.param({"txnId": "é" * 65}, "txnId has 1 to 128 bytes", id="long name"),
        pytest.param({"txnId": "once:a"}, "txnId does not begin with 'once:'", id="taken name"),
        pytest.param({"txnId": "a"}, "give the option txnVersion, too", id="name alone"),
        pytest.param({"txnVersion": "1"}, "counts the writes of a txnId", id="version alone"),
        pytest.param(
            {"txnId": "a", "txnVersion": "-1"}, "txnVersion is a number from 0", id="version"
        ),
        pytest.param(
            {"txnId": "a", "txnVersion": str(2**63)}, "txnVersion is a number", id="large version"
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(FjordError, match=told):
        options.parse_sink({**SERVER, **given}, is_stream=False)


def test_a_stream_numbers_its_batches_itself() -> None:
    with pytest.raises(FjordError, match="numbers its batches itself"):
        options.parse_sink({**SERVER, "txnId": "a", "txnVersion": "1"}, is_stream=True)


def test_the_page_names_every_option() -> None:
    page = PAGE.read_text()
    assert [name for name in options.SINK_NAMES if f"| `{name}` |" not in page] == []
