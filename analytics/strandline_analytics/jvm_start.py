"""Starts the JVM of an embedded Spark with the command that spark-submit makes, but without spark-submit.

spark-submit is two shell scripts and a JVM of their own, which prints the command for the second JVM: about half a
second before anything of Spark is loaded. For an installed PySpark without further settings, the command is
known.

Invariant: the command is the one that Spark's launcher makes (a test compares them), and where a user has set Spark
up, by a variable or a file, spark-submit starts it as ever.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from strandline_analytics.jvm import gateway_of, is_started
from strandline_analytics.pyspark_range import numbers_of

_OF_RUNNING = frozenset({"SPARK_LOCAL_IP", "SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"})
"""Variables that a running Spark reads, but that do not affect how it is started."""
_OF_SPARK = ("SPARK_", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "_SPARK_")
_SCALA = "2.13"
_LOOKED_AT_S = 0.01
_IS_41 = numbers_of(pyspark.__version__) < (4, 2)
_MODULES = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    "--add-modules=jdk.incubator.vector",
    *(
        f"--add-opens={package}=ALL-UNNAMED"
        for package in (
            "java.base/java.lang",
            "java.base/java.lang.invoke",
            "java.base/java.lang.reflect",
            "java.base/java.io",
            "java.base/java.net",
            "java.base/java.nio",
            "java.base/java.util",
            "java.base/java.util.concurrent",
            "java.base/java.util.concurrent.atomic",
            "java.base/jdk.internal.ref",
            "java.base/sun.nio.ch",
            "java.base/sun.nio.cs",
            "java.base/sun.security.action",
            "java.base/sun.util.calendar",
            "java.security.jgss/sun.security.krb5",
        )
    ),
    *(("-Djdk.reflect.useDirectMethodHandle=false",) if _IS_41 else ()),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    *(() if _IS_41 else ("--sun-misc-unsafe-memory-access=allow",)),
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
"""Options that Spark's launcher gives to every JVM; the launcher of PySpark 4.1 differs in two of them."""


def command(java: str, settings: Mapping[str, str]) -> list[str]:
    """The command of a JVM that waits for PySpark, as Spark's launcher makes it.

    Args:
        java: the program.
        settings: the settings of the session; memory and options of the driver become options of the JVM.
    """
    home = Path(pyspark.__path__[0])
    # The launcher lists this one before the others, so that it is the one that logs.
    logging = sorted((home / "jars").glob("slf4j-api-*.jar"))
    path = (f"{home}/conf", *map(str, logging), f"{home}/jars/*")
    options = settings["spark.driver.extraJavaOptions"].split()
    memory = f"-Xmx{settings['spark.driver.memory']}"
    words = [java, "-cp", os.pathsep.join(path), memory, *options, *_MODULES, "org.apache.spark.deploy.SparkSubmit"]
    for name, value in settings.items():
        words += ["--conf", f"{name}={value}"]
    return [*words, "pyspark-shell"]


@contextmanager
def started(
    settings: Mapping[str, str], meanwhile: Callable[[], object] = lambda: None
) -> Iterator[subprocess.Popen[bytes] | None]:
    """In the block PySpark finds a JVM with these settings; gives None if PySpark must start one itself.

    The JVM ends when its standard input does.

    Args:
        meanwhile: called once while the JVM starts, which takes a second: work of this process that has to be done.

    Raises:
        PySparkRuntimeError: the JVM ended before it could be spoken to (JAVA_GATEWAY_EXITED).
    """
    java = _java()
    if java is None or _is_set_up() or is_started():
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="strandline-jvm-") as folder:
        written = Path(folder, "address")
        jvm = subprocess.Popen(
            command(java, settings),
            stdin=subprocess.PIPE,
            env=os.environ | _variables(written),
            # An interrupt at the terminal is for this process, which ends the JVM.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
        )
        meanwhile()
        while jvm.poll() is None and not written.exists():
            time.sleep(_LOOKED_AT_S)
        if not written.exists():
            with jvm:
                raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})
        said = written.read_bytes()
        port, length = struct.unpack(">ii", said[:8])
        secret = said[8 : 8 + length].decode()
    os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    try:
        yield jvm
    finally:
        # Otherwise this process would be taken for one that spark-submit started.
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home, "bin")) if home else None)


def _is_set_up() -> bool:
    """Whether the user decided how Spark is started here, or the system is one that PySpark treats by itself."""
    named = any(name.startswith(_OF_SPARK) for name in os.environ if name not in _OF_RUNNING)
    return named or Path(pyspark.__path__[0], "conf").exists() or sys.platform == "win32"


def _variables(written: Path) -> dict[str, str]:
    """The variables that Spark's scripts set for the JVM, and the file in which it writes how to reach it."""
    home = pyspark.__path__[0]
    return {
        "SPARK_HOME": home,
        "SPARK_CONF_DIR": f"{home}/conf",
        "SPARK_ENV_LOADED": "1",
        "SPARK_SCALA_VERSION": _SCALA,
        "SPARK_CONNECT_MODE": "0",
        "PYTHONHASHSEED": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(written),
    }


# ---- jvm_words
# Passes the stderr of an embedded Spark on to the terminal, without its meaningless greetings.
#
# The JVM prints them whatever its logging is set to, and its workers print through it, so they are taken out on the
# way.
#
# Invariant: only whole lines that begin as `_GREETINGS` do are left out, and empty ones; the JVM waits for no reader.

_STDERR = 2
_GREETINGS = (
    b"WARNING: Using incubator modules",
    b"Setting default log level to",
    b"To adjust logging level use",
    b"Starting Streaming TransformWithState",
    b"Streaming TransformWithState",
)


@contextmanager
def without_greetings() -> Iterator[None]:
    """Pass the stderr of processes that are started in the block on to ours, without greetings."""
    ours = os.dup(_STDERR)
    reader, writer = os.pipe()
    threading.Thread(target=_pass_on, args=(reader, os.dup(ours)), name="jvm-words", daemon=True).start()
    os.dup2(writer, _STDERR)
    os.close(writer)
    try:
        yield
    finally:
        os.dup2(ours, _STDERR)
        os.close(ours)


def _pass_on(reader: int, ours: int) -> None:
    """Copy lines until every process that could write has ended."""
    with os.fdopen(reader, "rb") as lines, os.fdopen(ours, "wb", buffering=0) as stderr:
        for line in lines:
            if line.strip() and not line.startswith(_GREETINGS):
                stderr.write(line)


# ---- class_archive
# Gives the JVM the classes that an earlier one has read, so that a session starts in half the time.
#
# Spark reads thousands of classes from some 280 jars before it answers, checks each, and lays them out in memory. Java
# can keep the outcome in a file (JEP 350). It is made on demand (`make_archive`), because it takes a
# minute and 190 MB; embedded sessions that follow use it. It belongs to one Java and one PySpark. The JVM checks that
# itself, and starts without where anything differs.
#
# Invariant: an archive only saves time; a missing archive, or one that does not fit, causes no message.

_EXIT_S = 180.0
"""The maximum time in which the JVM writes the file at its end."""


class NoArchive(Exception):
    """The archive could not be made."""


def archive_path() -> Path:
    """The path of the archive for this Java and this PySpark, in the user's cache (XDG_CACHE_HOME)."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java") or "java"
    whose = "\n".join((os.path.realpath(java), pyspark.__version__, os.path.realpath(pyspark.__path__[0])))
    # A user without a home directory is given a relative path, which `jvm_options` and `make_archive` do not take.
    cache = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    return cache / "strandline" / f"classes-{hashlib.sha256(whose.encode()).hexdigest()[:16]}.jsa"


def jvm_options() -> tuple[str, ...]:
    """The options with which a JVM uses the archive; empty if there is none."""
    path = archive_path()
    # `os.access`, because Path.is_file raises if this user has no permission.
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
    """End a JVM, which happens when no process can write to it any more; the code that it ended with."""
    assert jvm.stdin is not None, "PySpark starts its JVM with a pipe"
    jvm.stdin.close()
    try:
        return jvm.wait(timeout=_EXIT_S)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()
        raise NoArchive(f"the JVM was still writing it after {_EXIT_S:g} s, and was ended") from None


def _refusal(path: Path) -> str:
    """The reason why no archive can be stored there; empty if it can."""
    if not path.is_absolute():
        return "this user has no home; set XDG_CACHE_HOME to an absolute path"
    if any(letter.isspace() for letter in str(path)):
        return f"{path} has a space in it, which Spark takes for the end of an option; set XDG_CACHE_HOME"
    return ""
