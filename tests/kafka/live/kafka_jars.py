"""Apache Kafka's jars from Maven, once for all that start it: the tests of this folder, and the benchmarks."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

NEWEST = "4.3.1"
_CACHE = Path.home() / ".cache" / "strandline"
JARS = _CACHE / f"kafka-tools-{NEWEST}"
_POM = Path(__file__).parent / "pom.xml"
_OTHER_LOGGERS = "slf4j-reload4j,slf4j-simple"


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
    return _fetched(JARS, limit_s, tools)


def jars_with_log4j(release: str, limit_s: float) -> Path:
    """The jars of any release, with log4j 2 behind its logs, which writes one line in several layouts.

    Args:
        limit_s: for how long Maven may fetch them.

    Raises:
        KafkaAbsent: a tool is missing, or Maven does not get the packages.
    """
    more = [f"-Dkafka.version={release}", "-Plog4j", f"-DexcludeArtifactIds={_OTHER_LOGGERS}"]
    return _fetched(_CACHE / f"kafka-log4j-{release}", limit_s, ("java", "mvn"), more)


def _fetched(folder: Path, limit_s: float, tools: Sequence[str], more: Sequence[str] = ()) -> Path:
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        raise KafkaAbsent(f"{', '.join(missing)} not installed; on Debian: apt-get install default-jdk-headless maven")
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        copy = ["mvn", "-B", "-q", "-f", str(_POM), "dependency:copy-dependencies"]
        run([*copy, *more, "-DincludeScope=runtime", f"-DoutputDirectory={folder}"], limit_s)
        (folder / "complete").touch()
    return folder


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
