"""A standalone Spark cluster of the installed PySpark on loopback: a master, and workers of one core each.

Its daemons and executors are JVMs with small heaps and one compiler, because the machine of a test has few cores.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

import pyspark

START_S = 120.0
_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
"""Options of a JVM that lives for seconds."""
_LOOK_S = 0.1


class SparkCluster:
    """Processes that end with the block."""

    def __init__(self, directory: Path, *, workers: int) -> None:
        """Nothing is started yet.

        Args:
            directory: for logs, and for what executors write.
            workers: each is a process, and has one core.
        """
        self._directory = directory
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.master = ""
        """The address for spark-submit."""

    def __enter__(self) -> SparkCluster:
        try:
            listening = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            self._start("master", "Master", *listening)
            self.master = self._line("master", r"Starting Spark master at (spark://\S+)")
            for number in range(self._workers):
                place = ("--work-dir", str(self._directory / f"worker{number}"))
                resources = ("--cores", "1", "--memory", "1g")
                self._start(f"worker{number}", "Worker", *listening, *resources, *place, self.master)
            for number in range(self._workers):
                self._line(f"worker{number}", "Successfully registered with master")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._end()

    def executors(self) -> list[int]:
        """How many executors each worker ran."""
        return [len([*(self._directory / f"worker{number}").glob("app-*/*/stderr")]) for number in range(self._workers)]

    def _start(self, name: str, kind: str, *words: str) -> None:
        environment = os.environ | {
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_NO_DAEMONIZE": "1",
            "PYSPARK_PYTHON": sys.executable,
        }
        package = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
        with self._log(name).open("wb") as log:
            command = [str(_SPARK_CLASS), package, *words]
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))

    def _log(self, name: str) -> Path:
        return self._directory / f"{name}.log"

    def _line(self, name: str, pattern: str) -> str:
        """Wait for a line of a log; its first group."""
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if found := re.search(pattern, text := self._log(name).read_text(errors="replace")):
                return found[found.re.groups]
            time.sleep(_LOOK_S)
        raise TimeoutError(f"{name} did not say {pattern!r} within {START_S:g} s: {text[-2000:]}")

    def _end(self) -> None:
        # The workers first: without them the master has nothing to say.
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
