"""The start of an embedded Spark: its JVM, the archive of classes, and settings by the size of the input."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession, functions as F

from strandline_analytics import jvm_start
from strandline_analytics.jvm_start import NoArchive, archive_path, command, jvm_options, make_archive, started
from strandline_analytics.scope import Scope
from strandline_analytics.session import (
    HOURS,
    HOURS_BYTES,
    MIDDLE,
    MIDDLE_BYTES,
    MOST_PARTS,
    SMALL,
    SMALL_BYTES,
    carried_out_in,
    session_for,
)
from strandline_analytics.silver.kept import KEPT_AS_ROWS
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result

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


@pytest.fixture
def as_installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No variable of Spark is set, and this process has no JVM yet."""
    for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(SparkContext, "_gateway", None)
    return iter([None])


@pytest.mark.usefixtures("as_installed")
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


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    "name", ["SPARK_HOME", "SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS", "HADOOP_CONF_DIR"]
)
def test_where_spark_was_set_up_spark_submit_starts_it(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A variable that spark-submit reads leaves the start to it."""
    monkeypatch.setenv(name, "/somewhere")

    with started(_SETTINGS) as jvm:
        assert jvm is None


@pytest.mark.usefixtures("as_installed")
def test_settings_in_the_folder_of_spark_leave_the_start_to_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder `conf` in the installed PySpark, of spark-defaults or spark-env, leaves the start to spark-submit."""
    monkeypatch.setattr(jvm_start.pyspark, "__path__", [str(tmp_path)])
    (tmp_path / "conf").mkdir()

    with started(_SETTINGS) as jvm:
        assert jvm is None


@pytest.mark.usefixtures("as_installed")
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


@pytest.mark.usefixtures("as_installed")
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


@pytest.mark.usefixtures("as_installed")
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


# The archive of classes: made by one process, used by others, and never blocking any.


_LIMIT_S_ARCHIVE = 240


_MAKE = """
from strandline_analytics.jvm_start import make_archive
from strandline_analytics.session import open_session

def opened(jvm):
    return open_session(master="local[1]", memory="1g", jvm=jvm)

print(make_archive(opened, lambda spark: spark.range(9).count()))
"""


_USE = """
import sys
from strandline_analytics.jvm_start import jvm_options
from strandline_analytics.session import open_session

spark = open_session(master="local[1]", memory="1g", jvm=(*jvm_options(), f"-Xlog:class+load:file={sys.argv[1]}"))
print(spark.range(9).count())
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this user."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def python(program: str, *arguments: str) -> tuple[str, str]:
    """The stdout and stderr of a separate program."""
    ran = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=_LIMIT_S_ARCHIVE,
        check=False,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip(), ran.stderr.strip()


@pytest.mark.timeout(2 * _LIMIT_S_ARCHIVE)
def test_what_one_process_archived_another_one_reads(cache: Path, tmp_path: Path) -> None:
    """Spark's classes come from the archive that the first process made, and neither process prints anything of it."""
    made, words = python(_MAKE)
    assert (Path(made), words) == (archive_path(), "")
    assert [path.name for path in archive_path().parent.iterdir()] == [archive_path().name]

    assert python(_USE, str(tmp_path / "loaded.log")) == ("9", "")

    loaded = (tmp_path / "loaded.log").read_text().splitlines()
    assert any("org.apache.spark.SparkContext source: shared objects file (top)" in line for line in loaded)


@pytest.mark.timeout(_LIMIT_S_ARCHIVE)
def test_an_archive_that_does_not_fit_is_passed_over_in_silence(cache: Path, tmp_path: Path) -> None:
    """With a file that the JVM cannot use the answer is the same as without one, and nothing is printed."""
    archive_path().parent.mkdir(parents=True)
    archive_path().write_bytes(b"of another Java" * 4_096)

    assert python(_USE, str(tmp_path / "loaded.log")) == ("9", "")

    assert "shared objects file (top)" not in (tmp_path / "loaded.log").read_text()


def test_without_an_archive_the_jvm_gets_no_options(cache: Path) -> None:
    """Nothing is made automatically, and an option that names no file would be a warning."""
    assert jvm_options() == ()
    assert not cache.exists()


@pytest.mark.parametrize(("home", "rule"), [("relative", "has no home"), ("/a b", "has a space in it")])
def test_a_place_that_cannot_be_used_is_refused(monkeypatch: pytest.MonkeyPatch, home: str, rule: str) -> None:
    """Making it is rejected before a session is opened, with the option to set; sessions run without it."""
    monkeypatch.setenv("XDG_CACHE_HOME", home)

    assert jvm_options() == ()
    with pytest.raises(NoArchive, match=f"{rule}.*set XDG_CACHE_HOME"):
        make_archive(lambda _: pytest.fail("a session was opened"), lambda _: None)


def test_each_java_and_each_pyspark_have_their_own(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each Java version and each PySpark version has an archive file of its own."""
    found = [archive_path()]
    monkeypatch.setenv("JAVA_HOME", "/opt/another-java")
    found.append(archive_path())
    monkeypatch.setattr(jvm_start.pyspark, "__version__", "0.0.1")
    found.append(archive_path())

    assert len(set(found)) == 3
    assert {path.parent for path in found} == {cache / "strandline"}


def test_a_jvm_that_does_not_end_is_ended(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process waits for an archive no longer than the limit, prints a message, and leaves no process and no file."""
    monkeypatch.setattr(jvm_start, "_EXIT_S", 0.1)
    jvm = subprocess.Popen(["sleep", str(_LIMIT_S_ARCHIVE)], stdin=subprocess.PIPE)
    gateway = SimpleNamespace(proc=jvm, shutdown=lambda: None)
    session = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway), stop=lambda: None)

    def opened(options: tuple[str, ...]) -> Any:
        Path(options[0].partition("=")[2]).write_text("half of it")
        return session

    with pytest.raises(NoArchive, match=r"still writing it after 0\.1 s"):
        make_archive(opened, lambda _: None)

    assert jvm.poll() == -signal.SIGKILL
    assert list(archive_path().parent.iterdir()) == []


# How a query is executed by the size of its input, and that no other query's settings change for it.


def settings(spark: SparkSession) -> dict[str, str | None]:
    """The settings that may depend on a size."""
    return {name: spark.conf.get(name) for name in SMALL | MIDDLE}


@pytest.mark.parametrize(
    ("size_bytes", "decided"),
    [
        (SMALL_BYTES, SMALL),
        (SMALL_BYTES + 1, HOURS),
        (HOURS_BYTES, HOURS),
        (HOURS_BYTES + 1, MIDDLE),
        (MIDDLE_BYTES, MIDDLE),
    ],
)
def test_a_size_has_its_settings_and_changes_no_others(
    spark: SparkSession, size_bytes: int, decided: dict[str, str]
) -> None:
    """Each size has the settings listed for it; the given session keeps its own."""
    before = settings(spark)

    fitted = session_for(spark, size_bytes)

    assert {name: fitted.conf.get(name) for name in decided} == decided
    assert settings(spark) == before
    assert session_for(spark, size_bytes) is fitted


def test_what_was_set_holds_for_every_size(spark: SparkSession) -> None:
    """A setting that depends on no size is that of the given session, whenever it was set."""
    name = "spark.sql.session.timeZone"
    session_for(spark, SMALL_BYTES)
    spark.conf.set(name, "+09:00")
    try:
        assert [session_for(spark, size).conf.get(name) for size in (SMALL_BYTES, MIDDLE_BYTES)] == ["+09:00"] * 2
    finally:
        spark.conf.set(name, "UTC")

    assert session_for(spark, SMALL_BYTES).conf.get(name) == "UTC"


def test_a_catalog_that_was_added_is_there_for_every_size(spark: SparkSession) -> None:
    """Tables are written by the session for a size, so it has the catalogs of the given one, whenever they were set."""
    settings_of_it = ("spark.sql.catalog.lake", "spark.sql.catalog.lake.type")
    for setting in settings_of_it:
        spark.conf.set(setting, "hadoop")
    try:
        fitted = session_for(spark, SMALL_BYTES)
        assert [fitted.conf.get(setting) for setting in settings_of_it] == ["hadoop", "hadoop"]
    finally:
        for one in (spark, session_for(spark, SMALL_BYTES)):
            for setting in settings_of_it:
                one.conf.unset(setting)


@pytest.mark.parametrize(
    ("size_bytes", "parts"),
    [(MIDDLE_BYTES + 1, 16), (100 << 30, 1_024), (1 << 40, MOST_PARTS), (1 << 50, MOST_PARTS)],
)
def test_large_input_has_parts_by_its_bytes(spark: SparkSession, size_bytes: int, parts: int) -> None:
    """A shuffle partition has about `PART_BYTES`, up to the maximum number, and an explicit setting is kept."""
    before = settings(spark)

    assert session_for(spark, size_bytes).conf.get("spark.sql.shuffle.partitions") == str(parts)
    assert settings(spark) == before


def test_what_others_had_set_holds_for_every_size(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a session that was prepared elsewhere, a size changes only what was not set there."""
    theirs = {"spark.sql.shuffle.partitions": "200", "spark.sql.adaptive.enabled": "false"}
    prepared = spark.newSession()
    monkeypatch.setattr("strandline_analytics.session._GIVEN", {})
    monkeypatch.setattr("strandline_analytics.session._FITTED", {})
    for name, value in theirs.items():
        prepared.conf.set(name, value)

    for size in (SMALL_BYTES, HOURS_BYTES, MIDDLE_BYTES, 1 << 40):
        fitted = session_for(prepared, size)
        assert {name: fitted.conf.get(name) for name in theirs} == theirs
    assert session_for(prepared, SMALL_BYTES).conf.get("spark.sql.codegen.factoryMode") == "NO_CODEGEN"


@pytest.mark.parametrize(
    ("master", "rows"),
    [("local", "true"), ("local[2]", "true"), ("local-cluster[2,1,1024]", "false"), ("spark://h:7077", "false")],
)
def test_tables_are_kept_as_rows_in_one_process_alone(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, master: str, rows: str
) -> None:
    """Where executors are processes of their own, a lost one must not take with it what cannot be made again."""
    prepared = spark.newSession()
    monkeypatch.setattr("strandline_analytics.session._FITTED", {})
    monkeypatch.setattr("strandline_analytics.session._GIVEN", {})
    monkeypatch.setattr("strandline_analytics.session._master", lambda _: master)

    assert session_for(prepared, SMALL_BYTES).conf.get(KEPT_AS_ROWS) == rows


def test_a_query_is_planned_with_the_settings_of_its_session(spark: SparkSession) -> None:
    """A query of one session, executed in another, has that one's number of shuffle partitions, and the same rows."""
    small, other = session_for(spark, SMALL_BYTES), spark.newSession()
    other.conf.set("spark.sql.adaptive.enabled", "false")
    other.conf.set("spark.sql.shuffle.partitions", "3")
    query = other.range(0, 100, 1, 4).groupBy((F.col("id") % 7).alias("rest")).count()

    there = carried_out_in(small, query)

    assert (query.rdd.getNumPartitions(), there.rdd.getNumPartitions()) == (3, 1)
    assert sorted(there.collect()) == sorted(query.collect())
    assert there.sparkSession is small


@pytest.mark.parametrize("name", ["s01", "s08", "s18", "s20"])
def test_a_statistic_is_carried_out_for_the_size_of_what_it_reads(spark: SparkSession, silver: Any, name: str) -> None:
    """A query that reads samples is planned for the size of samples, though its groups come from transitions."""
    alone, both = session_for(spark, SMALL_BYTES), session_for(spark, MIDDLE_BYTES)
    tables = replace(
        silver('{"t": 0, "event_type": "LEADER_CHANGE", "new_leader": 1, "leader_epoch": 0, "partition_epoch": 0}'),
        fit=lambda query, samples: carried_out_in(both if samples else alone, query),
    )

    found = result(ALL[name], tables, Scope(start_us=0, end_us=60_000_000))

    assert found.sparkSession is (both if ALL[name].reads_samples else alone)
