"""What every part knows of jobs: settings there and back, priorities, the domain of a key."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fjord import jobs, limits

# -- priorities and states ------------------------------------------------------------------------


@pytest.mark.req("SJ-08")
def test_named_priorities_have_the_seeds_numbers() -> None:
    assert {one.name: one.value for one in jobs.Priority if one is not jobs.Priority.DEFAULT} == {
        "NOW": 0,
        "IMPORTANT": 10,
        "NEW_PAGE": 20,
        "RESET": 50,
        "UPDATES": 180,
        "SLOW": 200,
        "REVIEW": 230,
        "TIME_ALLOWS": 255,
    }
    assert sorted(jobs.Priority) == list(jobs.Priority)


def test_why_a_job_changed_is_a_number_that_ops_hold() -> None:
    assert [one.value for one in jobs.How] == list(range(1, 12))


# -- settings -------------------------------------------------------------------------------------

settings_ = st.builds(
    jobs.Settings,
    merge=st.booleans(),
    fairness=st.sampled_from(jobs.Fairness),
    lease_us=st.integers(limits.LEASE_US_MIN, limits.LEASE_US_MAX),
    timeouts_max=st.integers(0, limits.TIMEOUTS_MAX),
    debounce_us=st.integers(0, limits.PROCESS_AHEAD_US_MAX),
    period=st.sampled_from(jobs.Period),
    drained=st.sampled_from(jobs.Drained),
    secure=st.booleans(),
)


@pytest.mark.req("SJ-12")
def test_usual_settings_are_those_of_the_decisions() -> None:
    """Decisions 18 and 19."""
    hour_us = 3600 * 1_000_000
    assert asdict(jobs.Settings()) == {
        "merge": True,
        "fairness": "none",
        "lease_us": hour_us,
        "timeouts_max": 5,
        "debounce_us": hour_us,
        "history": True,
        "columns": (),
        "key": (),
        "schema": 1,
        "earlier": (),
        "period": "",
        "drained": "delete",
        "secure": False,
    }


def test_what_is_as_usual_takes_no_bytes() -> None:
    assert jobs.Settings().encode() == b""
    assert jobs.Settings(merge=False).encode() == b'{"merge":false}'
    assert jobs.Settings(timeouts_max=0, fairness=jobs.Fairness.DOMAIN).encode() == (
        b'{"fairness":"domain","timeouts_max":0}'
    )


@given(settings_)
def test_settings_are_read_as_they_were_written(settings: jobs.Settings) -> None:
    found = jobs.decode_settings(settings.encode())
    assert found == settings
    assert type(found.fairness) is jobs.Fairness
    assert len(settings.encode()) <= limits.SETTINGS_BYTES_MAX


@given(settings_)
def test_settings_that_say_everything_are_the_same_settings(settings: jobs.Settings) -> None:
    spelt_out = json.dumps(asdict(settings), indent=2).encode()
    assert jobs.decode_settings(spelt_out) == settings
    assert jobs.decode_settings(spelt_out).encode() == settings.encode()


NO_NUMBERS: tuple[Any, ...] = (None, True, False, 1.5, 5e9, "60", "", [], {}, [60], float("nan"))
NO_BOOLEANS: tuple[Any, ...] = (None, 0, 1, "true", "", [], {}, 1.0)
NO_FAIRNESS: tuple[Any, ...] = (None, 0, True, "", "Domain", "fair", " none", [], {}, ["domain"])
BAD: list[tuple[str, Any]] = [
    ("lease_us", limits.LEASE_US_MIN - 1),
    ("lease_us", limits.LEASE_US_MAX + 1),
    ("lease_us", 0),
    ("lease_us", -1),
    ("timeouts_max", -1),
    ("timeouts_max", limits.TIMEOUTS_MAX + 1),
    ("debounce_us", -1),
    ("debounce_us", limits.PROCESS_AHEAD_US_MAX + 1),
    ("debounce_us", 10**400),
    *((name, one) for name in ("lease_us", "timeouts_max", "debounce_us") for one in NO_NUMBERS),
    *(("merge", one) for one in NO_BOOLEANS),
    *(("fairness", one) for one in NO_FAIRNESS),
]


@pytest.mark.parametrize(("name", "value"), BAD, ids=lambda one: repr(one)[:30])
def test_every_bad_setting_is_refused_by_its_name(name: str, value: Any) -> None:
    for more in ({}, {"timeouts_max": 7, "merge": False}):
        data = json.dumps(more | {name: value}).encode()
        with pytest.raises(ValueError, match=f"^{name} is "):
            jobs.decode_settings(data)


@pytest.mark.parametrize("name", ["", "lease", "LEASE_US", " merge", "__class__", "encode", "é"])
def test_a_setting_that_does_not_exist_is_refused_with_those_that_do(name: str) -> None:
    with pytest.raises(ValueError, match="there is no setting") as caught:
        jobs.decode_settings(json.dumps({name: 1}).encode())
    assert all(known in str(caught.value) for known in asdict(jobs.Settings()))


@pytest.mark.parametrize(
    "data",
    [
        *(b"null", b"[]", b"[{}]", b"1", b"true", b'"merge"', b"merge=off", b"{", b"{}{}"),
        *(b"{merge: true}", b'{"merge":}', b"\xff\xfe\xfd", b"\0", b"[" * 100_000),
        *(b'{"lease_us":' + b"9" * 4_000 + b"}", b'{"lease_us":' + b"9" * 10_000 + b"}"),
        b"<table/>",
    ],
    ids=lambda one: repr(one)[:20],
)
def test_what_is_no_object_of_settings_is_refused(data: bytes) -> None:
    with pytest.raises(
        ValueError, match=r"settings must be a JSON object|lease_us is a whole number"
    ):
        jobs.decode_settings(data)


def test_no_refusal_says_more_than_a_line() -> None:
    for data in (b'{"%s":1}' % (b"n" * 4_000), b'{"lease_us":%s}' % (b"9" * 4_000), b"x" * 4_000):
        with pytest.raises(ValueError, match=r"^[a-z]") as caught:
            jobs.decode_settings(data)
        assert len(str(caught.value)) < 256
        assert "\n" not in str(caught.value)


@given(st.binary(max_size=60) | st.text(max_size=40).map(str.encode))
def test_any_bytes_are_settings_or_are_refused(data: bytes) -> None:
    check_or_refused(data)


def check_or_refused(data: bytes) -> None:
    try:
        settings = jobs.decode_settings(data)
    except ValueError:
        return
    assert jobs.decode_settings(settings.encode()) == settings


# -- domains --------------------------------------------------------------------------------------

DOMAINS: list[tuple[bytes, bytes]] = [
    (b"http://example.com/a", b"example.com"),
    (b"http://example.com", b"example.com"),
    (b"http://example.com?q=1", b"example.com"),
    (b"http://example.com#part", b"example.com"),
    (b"http://example.com?u=a@b.org", b"example.com"),
    (b"http://example.com/a@b.org/", b"example.com"),
    (b"http://example.com./a", b"example.com."),
    # Upper case.
    (b"HTTP://EXAMPLE.COM/A", b"example.com"),
    (b"Https://WWW.Example.Com/A", b"www.example.com"),
    # Ports.
    (b"http://example.com:8080/a", b"example.com"),
    (b"http://example.com:/a", b"example.com"),
    (b"http://10.0.0.1:80", b"10.0.0.1"),
    # Users.
    (b"http://me@example.com/a", b"example.com"),
    (b"http://me:secret@example.com:80/a", b"example.com"),
    (b"http://me:p@ss@example.com/a", b"example.com"),
    (b"ftp://:@example.com", b"example.com"),
    # IPv6.
    (b"http://[::1]/a", b"[::1]"),
    (b"http://[2001:DB8::1]:8080/a", b"[2001:db8::1]"),
    (b"http://me:secret@[::1]:80/a", b"[::1]"),
    # Schemes.
    (b"s3://bucket/key", b"bucket"),
    (b"git+ssh://host/repo", b"host"),
    (b"x-a.b+c://host", b"host"),
    # No scheme, no host.
    (b"example.com/a", b""),
    (b"//example.com/a", b""),
    (b"http:/example.com", b""),
    (b"http//example.com", b""),
    (b"://example.com", b""),
    (b" ://example.com", b""),
    (b"mailto:me@example.com", b""),
    (b"file:///etc/hosts", b""),
    (b"http://", b""),
    (b"http://:80/", b""),
    (b"", b""),
    (b"resize 17", b""),
    # A function, or its number, and a URI.
    (b"render http://example.com/a", b"example.com"),
    (b"17 https://Example.com:443/a b", b"example.com"),
    (b"render:http://example.com/a", b"example.com"),
    (b"render\thttp://example.com\tfast", b"example.com"),
    (b"copy http://one.com/a http://two.com/b", b"one.com"),
    (b"fetch(http://one.com/a)", b"one.com"),
    # Any bytes.
    (b"\xff\0http://example.com/\xff", b"example.com"),
    (b"http://ex\xc3\xa4mple.com/", b"ex\xc3\xa4mple.com"),
    (b"http://two\nlines.com/", b"two"),
    (b"http://" + b"a" * 300 + b"/", b"a" * limits.DOMAIN_BYTES_MAX),
]


@pytest.mark.req("FJ-07")
@pytest.mark.parametrize(("key", "domain"), DOMAINS, ids=[repr(key[:40]) for key, _ in DOMAINS])
def test_the_domain_of_a_key_is_the_host_of_its_uri(key: bytes, domain: bytes) -> None:
    assert jobs.domain_of(key) == domain


hosts = st.from_regex(rb"[a-z0-9][a-z0-9.-]{0,30}", fullmatch=True)
users = st.just(b"") | st.from_regex(rb"[A-Za-z0-9:@.!~-]{0,12}@", fullmatch=True)
ports = st.just(b"") | st.integers(0, 65535).map(lambda port: b":%d" % port)
rests = st.just(b"") | st.from_regex(rb"[/?#][!-~]{0,20}", fullmatch=True)


@pytest.mark.req("FJ-07")
@given(
    before=st.from_regex(rb"([a-z0-9_]{1,10} )?", fullmatch=True),
    scheme=st.sampled_from([b"http", b"HTTPS", b"s3", b"git+ssh"]),
    user=users,
    host=hosts,
    port=ports,
    rest=rests,
)
def test_whatever_stands_around_a_host_it_is_found(
    before: bytes, scheme: bytes, user: bytes, host: bytes, port: bytes, rest: bytes
) -> None:
    uri = b"".join((before, scheme, b"://", user, host.upper(), port, rest))
    assert jobs.domain_of(uri) == host


@given(st.binary(max_size=100) | st.text("htp:/@[]?# .aA\n", max_size=40).map(str.encode))
def test_any_key_has_a_domain_or_none(key: bytes) -> None:
    found = jobs.domain_of(key)
    assert len(found) <= limits.DOMAIN_BYTES_MAX
    assert found == found.lower()
    assert not set(found) & set(b"/?# \n")
    assert found in key.lower()


@pytest.mark.parametrize(
    "key",
    [
        *(b"a" * limits.JOB_KEY_BYTES_MAX, b"a" * (limits.JOB_KEY_BYTES_MAX - 4) + b"!://"),
        *(b"a:/" * (limits.JOB_KEY_BYTES_MAX // 3), b"http://" + b"a@" * 500),
        *(b"http://" + b"[" * 1000, b"!://" * (limits.JOB_KEY_BYTES_MAX // 4)),
    ],
    ids=lambda key: repr(key[:8]),
)
def test_no_key_takes_long_to_look_at(key: bytes) -> None:
    """As many of the longest keys as one push has room for, while everyone else waits."""
    before = time.process_time()
    for _ in range(limits.BATCH_BYTES_MAX // limits.JOB_KEY_BYTES_MAX):
        jobs.domain_of(key)
    assert time.process_time() - before < 1.0
