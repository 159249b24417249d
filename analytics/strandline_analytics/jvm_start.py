"""How the JVM of an embedded Spark is started: with the command that spark-submit makes, and without spark-submit.

spark-submit is two shell scripts and a JVM of their own, which prints the command for the second JVM: about half a
second before anything of Spark is loaded. For an installed PySpark that nobody has set up further, the command is
known.

Invariant: the command is the one that Spark's launcher makes (a test compares them), and where somebody has set Spark
up, by a variable or a file, spark-submit starts it as ever.
"""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark
from pyspark.errors import PySparkRuntimeError

from strandline_analytics.jvm import is_started
from strandline_analytics.pyspark_range import numbers_of

_OF_RUNNING = frozenset({"SPARK_LOCAL_IP", "SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE"})
"""Variables that a running Spark reads, and that say nothing of how it is started."""
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
"""What Spark's launcher gives to every JVM of its own; that of PySpark 4.1 differs in two options."""


def command(java: str, settings: Mapping[str, str]) -> list[str]:
    """The command of a JVM that waits for PySpark, as Spark's launcher makes it.

    Args:
        java: the program.
        settings: of the session; memory and options of the driver are options of the JVM.
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
    """In the block PySpark finds a JVM with these settings; None where it has to start one itself.

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
        # Else this process would be taken for one that spark-submit started.
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]


def _java() -> str | None:
    home = os.environ.get("JAVA_HOME")
    return shutil.which("java", path=str(Path(home, "bin")) if home else None)


def _is_set_up() -> bool:
    """Whether somebody decided how Spark is started here, or the system is one that PySpark treats by itself."""
    named = any(name.startswith(_OF_SPARK) for name in os.environ if name not in _OF_RUNNING)
    return named or Path(pyspark.__path__[0], "conf").exists() or sys.platform == "win32"


def _variables(written: Path) -> dict[str, str]:
    """What the scripts of Spark set for the JVM, and where it says how to reach it."""
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
