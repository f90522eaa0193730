"""A standalone cluster of Spark on loopback: a master and workers, from the installed package."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pyspark

HOME = Path(pyspark.__file__).parent
# Nothing of it is for other machines, and no host name has to resolve.
LOOPBACK = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
# They live for seconds, as the drivers of tests do.
SHORT_LIVED = os.environ["SPARK_SUBMIT_OPTS"]
ENVIRONMENT = {
    "SPARK_HOME": str(HOME),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "SPARK_DAEMON_MEMORY": "256m",
    "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
    "PYSPARK_PYTHON": sys.executable,
}


@contextlib.contextmanager
def cluster(directory: Path, *, workers: int = 2) -> Iterator[str]:
    """Runs a master and workers with one core each; yields the master's address."""
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(Node("master", directory))
        url = master.wait(r"Starting Spark master at (\S+)")
        nodes = [
            stack.enter_context(
                Node("worker", directory, "--cores", "1", "--memory", "1g", "--work-dir", name, url)
            )
            for name in (str(directory / f"worker-{number}") for number in range(workers))
        ]
        for node in nodes:
            node.wait(r"Successfully registered with master (\S+)")
        yield url


class Node:
    """A process of the cluster; what it logs is read until it is ready, and then thrown away."""

    def __init__(self, kind: str, directory: Path, *options: str) -> None:
        name = f"org.apache.spark.deploy.{kind}.{kind.title()}"
        self._process = subprocess.Popen(
            [str(HOME / "bin" / "spark-class"), name, *LOOPBACK, *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=directory,
            text=True,
            env=os.environ | ENVIRONMENT,
        )
        assert self._process.stderr is not None
        self._log = self._process.stderr
        self._draining = threading.Thread(target=self._drain)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(timeout=30)
        if self._draining.ident is not None:
            self._draining.join(timeout=30)
        self._log.close()

    def wait(self, ready: str) -> str:
        """Waits for a line of its log; returns what is in brackets there."""
        said = []
        for line in self._log:
            said.append(line)
            if found := re.search(ready, line):
                self._draining.start()
                return found[1]
        raise AssertionError(f"it did not start:\n{''.join(said)}")

    def _drain(self) -> None:
        for _ in self._log:
            pass
