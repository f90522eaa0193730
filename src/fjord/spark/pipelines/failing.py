"""What Spark says when it fails, as one sentence.

A task that fails tells its error to the driver as text, inside the text of others.  The last error
of Python in there is the cause; without one the first line has to do.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from fjord.errors import FjordError

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
