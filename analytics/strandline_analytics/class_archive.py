"""Where the JVM finds the classes that an earlier one has read, so that a session starts in half the time.

Spark reads thousands of classes from some 280 jars before it answers, checks each, and lays them out in memory. Java
can keep the outcome in a file (JEP 350). It is made when somebody asks for it (`make_archive`), because it takes a
minute and 190 MB; embedded sessions that follow use it. It belongs to one Java and one PySpark. The JVM checks that
itself, and starts without where anything differs.

Invariant: an archive changes nothing but time; without one, and with one that does not fit, nothing is said.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

from strandline_analytics.jvm import gateway_of

_EXIT_S = 180.0
"""How long the JVM may take to write the file at its end."""


class NoArchive(Exception):
    """The archive could not be made."""


def archive_path() -> Path:
    """Where the archive for this Java and this PySpark is kept: in the user's cache (XDG_CACHE_HOME)."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java") or "java"
    whose = "\n".join((os.path.realpath(java), pyspark.__version__, os.path.realpath(pyspark.__path__[0])))
    # A user without a home directory is given a relative path, which `jvm_options` and `make_archive` do not take.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    return cache / "strandline" / f"classes-{hashlib.sha256(whose.encode()).hexdigest()[:16]}.jsa"


def jvm_options() -> tuple[str, ...]:
    """What a JVM needs as options to use the archive; nothing where there is none."""
    path = archive_path()
    # `os.access`, since Path.is_file raises where somebody may not look.
    if _refusal(path) or not os.access(path, os.R_OK):
        return ()
    return (f"-XX:SharedArchiveFile={path}", "-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def make_archive(open_session: Callable[[tuple[str, ...]], SparkSession], work: Callable[[SparkSession], Any]) -> Path:
    """Make the archive again, of all classes that ``work`` needs; one that is there already is replaced at the end.

    The process can open no other session afterwards: the archive is written by the JVM when it ends.

    Args:
        open_session: opens a session in a JVM of its own, with these further options.
        work: does with it what sessions usually do.

    Raises:
        NoArchive: the JVM did not write it, or did not end.
        OSError: the cache cannot be written.
    """
    path = archive_path()
    if refusal := _refusal(path):
        raise NoArchive(refusal)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(f".{os.getpid()}.unfinished")
    try:
        spark = open_session((f"-XX:ArchiveClassesAtExit={unfinished}", "-Xlog:disable", "-Xlog:all=error:stderr"))
        gateway = gateway_of(spark)
        try:
            work(spark)
        finally:
            spark.stop()
            gateway.shutdown()
            code = _ended(gateway.proc)
        if not unfinished.is_file():
            raise NoArchive(f"the JVM ended with code {code} and without an archive; Java 13 or newer can make one")
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def _ended(jvm: subprocess.Popen[bytes]) -> int:
    """End a JVM, which happens when nobody can write to it any more; the code that it ended with."""
    assert jvm.stdin is not None, "PySpark starts its JVM with a pipe"
    jvm.stdin.close()
    try:
        return jvm.wait(timeout=_EXIT_S)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()
        raise NoArchive(f"the JVM was still writing it after {_EXIT_S:g} s, and was ended") from None


def _refusal(path: Path) -> str:
    """Why no archive can lie there; empty if it can."""
    if not path.is_absolute():
        return "this user has no home; set XDG_CACHE_HOME to an absolute path"
    if any(letter.isspace() for letter in str(path)):
        return f"{path} has a space in it, which Spark takes for the end of an option; set XDG_CACHE_HOME"
    return ""
