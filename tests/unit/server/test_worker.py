"""A thread that does one thing after the other."""

from __future__ import annotations

from fjord.server.worker import Worker


def test_work_is_done_in_order_and_errors_go_to_whoever_gave_it() -> None:
    done: list[tuple[object, str]] = []

    def finish(result: object, error: Exception | None) -> None:
        done.append((result, str(error)))

    def fail() -> object:
        raise OSError("broken")

    worker = Worker("test")
    worker.put(lambda: 1, finish)
    worker.put(fail, finish)
    worker.put(lambda: 2, finish)
    worker.close()
    assert done == [(1, "None"), (None, "broken"), (2, "None")]
