"""What clients of one daemon share: values under several keys, and locks."""

from __future__ import annotations

from pathlib import Path

import pytest

import fjord
import fjord.aio
from fjord.errors import Code, LockedError, RefusedError
from fjord.wire import Function
from tests.acceptance import raw
from tests.acceptance.daemon import Daemon


@pytest.mark.req("FJ-31")
def test_a_value_keeps_its_other_keys_when_one_is_renamed(tmp_path: Path) -> None:
    with Daemon(tmp_path / "served") as one:
        for at in range(2):
            with fjord.connect(one.url) as db:
                kv = db.kv("default")
                if at == 0:
                    kv.set("sort0", "row", also=["uri", "id"])
                kv.rename(f"sort{at}", f"sort{at + 1}")
                kv.set("uri", f"row {at}")
                expected = dict.fromkeys((f"sort{at + 1}", "uri", "id"), f"row {at}")
                assert kv.get_many([f"sort{at}", *expected]) == expected
            one.stop()
            one.start()
        with raw.Raw(one.port) as seed:
            assert seed.code(raw.head(Function.RENAME) + raw.key(b"sort2") + raw.key(b"seed")) == ""
            assert [seed.code(raw.get(name)) for name in (b"seed", b"uri", b"id")] == [""] * 3
            assert seed.code(raw.get(b"sort2")) == "NOT_FOUND"


@pytest.mark.req("FJ-35")
def test_a_lock_keeps_other_clients_out_until_its_holder_is_gone(daemon: Daemon) -> None:
    with fjord.connect(daemon.url) as other:
        kv = other.kv("locks")
        kv.set("key", 1)
        with fjord.connect(daemon.url) as holder:
            with holder.kv("locks").locked("key"):
                with pytest.raises(LockedError):
                    kv.set("key", 2)
                with pytest.raises(LockedError):
                    kv.lock("key")
                with pytest.raises(RefusedError) as caught:
                    kv.unlock("key")
                assert caught.value.code is Code.NOT_OWNER
                entry = kv.entry("key")
                assert entry is not None
                assert entry.locked
            kv.set("key", 3)
            holder.kv("locks").lock("key")
        for _ in range(1000):  # the server hears of the end a moment later
            found = kv.entry("key")
            assert found is not None
            if not found.locked:
                break
        kv.set("key", 4)
        assert kv.get("key") == 4
