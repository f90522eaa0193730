"""Settings of a jobs table, as users give them."""

from __future__ import annotations

from datetime import timedelta

from fjord import jobs
from fjord.client.declared_tables import encode_job_settings


def test_settings_arrive_as_they_were_given() -> None:
    encoded = encode_job_settings(
        {
            "merge": False,
            "fairness": "domain",
            "lease": 60,
            "timeouts_max": 0,
            "debounce": timedelta(0),
        }
    )
    assert jobs.decode_settings(encoded) == jobs.Settings(
        merge=False,
        fairness=jobs.Fairness.DOMAIN,
        lease_us=60_000_000,
        timeouts_max=0,
        debounce_us=0,
    )


def test_the_bounds_themselves_are_taken() -> None:
    for lease, debounce in ((0.001, 0), (2_592_000, 31_622_400)):
        found = jobs.decode_settings(encode_job_settings({"lease": lease, "debounce": debounce}))
        assert (found.lease_us, found.debounce_us) == (lease * 1_000_000, debounce * 1_000_000)
