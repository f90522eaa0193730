"""Layouts: the bytes of every record that journals and indexes of older versions hold."""

from __future__ import annotations

import struct

import pytest

from fjord import layouts
from fjord.layouts import JOB_IMAGE, JOB_PLACE, JOB_REST, JOB_TAKEN, Fields
from fjord.tables import staging as stage_entry
from fjord.tables.jobs import layout as job_row
from fjord.tables.kv import layout
from fjord.tables.streams import layout as stream_entry

SMALL = Fields(number="H", letter="B", text="5s", date="Q")


def test_fields_follow_each_other_without_gaps() -> None:
    assert [SMALL.span(name) for name in SMALL.codes] == [
        slice(0, 2),
        slice(2, 3),
        slice(3, 8),
        slice(8, 16),
    ]
    assert SMALL.span("letter", "text") == slice(2, 8)
    assert SMALL.size == 16
    assert SMALL.packed(">").format == ">HB5sQ"


def test_the_fields_of_a_job_have_their_names_in_its_row() -> None:
    assert job_row.JobRow._fields == (*JOB_IMAGE.codes, "domain", "key")
    assert job_row.Lease._fields == tuple(layouts.JOB_LEASE.codes)


# To change one of these is to change a format: what is on disks has them so.
FORMATS = [
    (job_row.PLACE, ">QBQQ"),
    (job_row.REST, "<QQQQ16sBBBBIIII"),
    (job_row.LEASE, "<QQQB"),
    (job_row.DEATH, "<QBH"),
    (layout.BASE, "<QQIIIIB"),
    (layout.FULL, "<QQIIIIBQQQQQ"),
    (stream_entry.APPEND, "<IIIIIQ"),
    (stage_entry.STAGE, "<IIIIIQB"),
]


@pytest.mark.parametrize(("found", "wanted"), FORMATS, ids=[wanted for _, wanted in FORMATS])
def test_records_are_on_disks_as_they_were(found: struct.Struct, wanted: str) -> None:
    assert found.format == wanted


def test_fields_are_where_they_were() -> None:
    assert JOB_PLACE.size == 25
    assert JOB_IMAGE.size == 93
    assert JOB_REST.span("size") == slice(60, 64)
    assert JOB_IMAGE.span("held") == slice(49, 57)
    assert JOB_IMAGE.span("hash", "probe") == slice(57, 74)
    assert JOB_TAKEN.span("deadline_us") == slice(0, 8)
    assert JOB_TAKEN.span("row") == slice(42, 50)
