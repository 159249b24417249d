"""The JVM of an embedded Spark: started as spark-submit would start it, by spark-submit where that was set up."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError

from strandline_analytics import jvm_start
from strandline_analytics.jvm_start import command, started

_LIMIT_S = 120
_HOME = Path(pyspark.__path__[0])
_JAVA = os.path.realpath(shutil.which("java") or "java")
_SETTINGS = {
    "spark.app.name": "of a test",
    "spark.master": "local[1]",
    "spark.driver.memory": "300m",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -Dof.a.test=yes",
}
_OPENED = """
import os, sys
from strandline_analytics.session import open_session

spark = open_session(master="local[1]", memory="512m")
gateway = spark.sparkContext._gateway
print(gateway.proc.args[0], gateway.proc.pid, [name for name in os.environ if "GATEWAY" in name], flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def as_installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variable of Spark is set, and this process has no JVM yet."""
    for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    return iter([None])


def test_the_command_is_the_one_of_sparks_launcher() -> None:
    """Class path, options of the JVM, main class and settings are those that Spark's launcher prints."""
    settings = [word for name, value in _SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    submit = "org.apache.spark.deploy.SparkSubmit"
    launcher = [_JAVA, "-cp", f"{_HOME}/jars/*", "org.apache.spark.launcher.Main", submit]
    variables = {"SPARK_HOME": str(_HOME), "SPARK_CONF_DIR": f"{_HOME}/conf", "SPARK_SCALA_VERSION": jvm_start._SCALA}
    printed = subprocess.run(
        [*launcher, *settings, "pyspark-shell"], capture_output=True, check=True, timeout=_LIMIT_S,
        env=os.environ | variables,
    ).stdout.decode()  # fmt: skip
    theirs = [word for word in printed.strip("\n\0").split("\0") if word.strip()]
    main = theirs.index(submit)

    ours = command(_JAVA, _SETTINGS)

    assert (ours[0], ours[1 : main + 1]) == (os.path.realpath(theirs[0]), theirs[1 : main + 1])
    assert sorted(ours[main + 1 :]) == sorted(theirs[main + 1 :])


@pytest.mark.parametrize(
    "name", ["SPARK_HOME", "SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS", "HADOOP_CONF_DIR"]
)
def test_where_spark_was_set_up_spark_submit_starts_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A variable that spark-submit reads leaves the start to it."""
    monkeypatch.setenv(name, "/somewhere")

    with started(_SETTINGS) as jvm:
        assert jvm is None


def test_settings_in_the_folder_of_spark_leave_the_start_to_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder `conf` in the installed PySpark, of spark-defaults or spark-env, leaves the start to spark-submit."""
    monkeypatch.setattr(jvm_start.pyspark, "__path__", [str(tmp_path)])
    (tmp_path / "conf").mkdir()

    with started(_SETTINGS) as jvm:
        assert jvm is None


def test_a_jvm_that_ends_at_once_is_reported_as_pyspark_reports_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A Java that does not start Spark raises what the command line explains, and leaves no variable."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(PySparkRuntimeError, match="JAVA_GATEWAY_EXITED"), started(_SETTINGS):
        pytest.fail("the block was entered")

    assert not [name for name in os.environ if "GATEWAY" in name]


@pytest.mark.timeout(30)
def test_other_work_is_done_while_the_jvm_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is to be done meanwhile is done before the JVM can be spoken to: this one waits for it."""
    done = tmp_path / "done"
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(
        f"#!/bin/sh\nwhile [ ! -e {done} ]; do sleep 0.01; done\n"
        "printf '\\0\\0\\0\\7\\0\\0\\0\\1s' > $_PYSPARK_DRIVER_CONN_INFO_PATH.part\n"
        "mv $_PYSPARK_DRIVER_CONN_INFO_PATH.part $_PYSPARK_DRIVER_CONN_INFO_PATH\n"
    )
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with started(_SETTINGS, done.touch) as jvm:
        assert jvm is not None
        assert (os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]) == ("7", "s")
        assert jvm.stdin is not None
        jvm.stdin.close()
        assert jvm.wait() == 0


@pytest.mark.timeout(_LIMIT_S)
def test_the_jvm_is_a_child_that_ends_with_its_process() -> None:
    """The session's JVM is started by this process itself, no variable of it stays, and it ends when the process does.

    Without that, a command that was killed would leave a JVM of gigabytes.
    """
    with subprocess.Popen(
        [sys.executable, "-c", _OPENED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        java, pid, left = process.stdout.readline().split(maxsplit=2)
        jvm = os.pidfd_open(int(pid))
        process.kill()
        ended, _, _ = select.select([jvm], [], [], _LIMIT_S)
        os.close(jvm)

    assert (Path(java).name, left.strip()) == ("java", "[]")
    assert ended
