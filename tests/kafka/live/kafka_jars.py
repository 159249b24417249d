"""Apache Kafka's jars from Maven, once for all that start it: the tests of this folder, and the benchmarks."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

JARS = Path.home() / ".cache" / "strandline" / "kafka-tools-4.3.1"
_POM = Path(__file__).parent / "pom.xml"


class KafkaAbsent(Exception):
    """Kafka cannot be had here; the text is the reason."""


def jars(limit_s: float, tools: Sequence[str] = ("java", "mvn")) -> Path:
    """The folder with Kafka's jars, fetched if it is not there.

    Args:
        limit_s: for how long Maven may fetch them.
        tools: programs that are needed besides.

    Raises:
        KafkaAbsent: a tool is missing, or Maven does not get the packages.
    """
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        raise KafkaAbsent(f"{', '.join(missing)} not installed; on Debian: apt-get install default-jdk-headless maven")
    if not (JARS / "complete").exists():
        JARS.mkdir(parents=True, exist_ok=True)
        copy = ["mvn", "-B", "-q", "-f", str(_POM), "dependency:copy-dependencies"]
        run([*copy, "-DincludeScope=runtime", f"-DoutputDirectory={JARS}"], limit_s)
        (JARS / "complete").touch()
    return JARS


def run(command: list[str], limit_s: float) -> str:
    """What a command prints.

    Raises:
        KafkaAbsent: it fails, or does not end in time.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        raise KafkaAbsent(f"{command[0]} did not end within {limit_s:g} s") from None
    if done.returncode:
        raise KafkaAbsent(f"{command[0]} failed: {(done.stdout + done.stderr).strip()[-800:]}")
    return done.stdout
