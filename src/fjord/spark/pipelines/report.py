"""What a job says while it runs, and what it has done at its end."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from fjord.errors import FjordError

#: What is done right now, how much of it, and of how much; None: nobody knows.
Progress = Callable[[str, int, int | None], None]
Figure = int | float | str | bool | None


def silent(what: str, done: int, total: int | None) -> None:
    """Takes progress, and shows nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a job has done: a summary for people, JSON for programs."""

    job: str
    figures: Mapping[str, Figure]  # in the order in which they are shown
    rows: Sequence[Mapping[str, Figure]] = ()  # a table, if the job has one to show
    ok: bool = True  # False: what was looked at is not as it should be; exit code 1


# -- what Spark says when it fails, as one sentence -----------------------------------------------
#
# A task that fails tells its error to the driver as text, inside the text of others.  The last
# error of Python in there is the cause; without one the first line has to do.


_MISSING: Final = re.compile(
    r"^ModuleNotFoundError: No module named '(fjord|pyarrow)\b", re.MULTILINE
)
_CAUSE: Final = re.compile(r"^(?:[\w.]*\.)?\w*Error: (.+)$", re.MULTILINE)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turns an error of Spark into a FjordError that says what it is about."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise FjordError(cause(str(error))) from error


def cause(text: str) -> str:
    """Returns the sentence that matters in what Spark says."""
    if missing := _MISSING.search(text):
        return (
            f"the Python of Spark's workers has no {missing[1]}: install 'fjord-journal[spark]' on "
            "every machine of the cluster, or name a Python that has it with PYSPARK_PYTHON"
        )
    found = _CAUSE.findall(text)
    return str(found[-1]) if found else text.strip().partition("\n")[0] or "Spark failed"
