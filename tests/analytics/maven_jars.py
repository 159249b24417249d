"""Jars from Maven for tests that put more into Spark than PySpark brings: fetched once, kept in the user's cache.

Without Java's Maven, or where its repository cannot be had within a bounded time, they are absent, with the reason.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

FETCH_S = 150
_CACHE = Path.home() / ".cache" / "strandline"
_OF_SPARK = "io.netty,org.slf4j,commons-logging,commons-codec"
"""Groups of which PySpark has a version of its own, which must not be loaded twice."""


class JarsAbsent(Exception):
    """They cannot be had here; the text is the reason."""


def fetched(pom: Path) -> Path:
    """The folder with everything that a project depends on at run time and that PySpark does not bring.

    Args:
        pom: in a folder whose name says what the jars are for; fetched again when it has changed.

    Raises:
        JarsAbsent: a tool is missing, or Maven does not get the jars.
    """
    folder, mark = _CACHE / f"test-{pom.parent.name}", "complete"
    if (folder / mark).is_file() and (folder / mark).read_text() == pom.read_text():
        return folder
    if shutil.which("mvn") is None:
        raise JarsAbsent("mvn not installed; on Debian: apt-get install maven")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = ["mvn", "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
    command += [f"-DexcludeGroupIds={_OF_SPARK}", f"-DoutputDirectory={folder}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_S, check=False)
    except subprocess.TimeoutExpired:
        raise JarsAbsent(f"mvn did not end within {FETCH_S} s") from None
    if done.returncode:
        raise JarsAbsent(f"mvn failed: {(done.stdout + done.stderr).strip()[-800:]}")
    (folder / mark).write_text(pom.read_text())
    return folder
