"""What the analytics do with the JVM of a session: access, names that cross to it, and its output."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest
from py4j.java_gateway import JavaObject
from pyspark.errors import PySparkAttributeError
from pyspark.sql import SparkSession, functions as F

from strandline_analytics import jvm
from strandline_analytics.jvm import _RELEASED_AT_ONCE, release_together
from strandline_analytics.session import session_for
from strandline_analytics.sources import arrow_files

ROOT = Path(jvm.__file__).parent
PRIVATE = {"_gateway", "_gateway_client", "_jconf", "_jdf", "_jsc", "_jsparkSession", "_jvm", "_sc"}


class Connected:
    """As a session of Spark Connect refuses what only a JVM has."""

    def __getattr__(self, name: str) -> NoReturn:
        raise PySparkAttributeError(errorClass="JVM_ATTRIBUTE_NOT_SUPPORTED", messageParameters={"attr_name": name})


@pytest.fixture
def connected() -> Any:
    """A session without a JVM in reach."""
    return Connected()


def test_one_file_reaches_behind_pyspark() -> None:
    """No other file of the analytics names an attribute by which PySpark holds its JVM."""
    found = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if (isinstance(node, ast.Attribute) and node.attr in PRIVATE and ast.unparse(node) != "self._gateway")
        or (isinstance(node, ast.Constant) and node.value in PRIVATE)
    }

    assert found == {"jvm.py"}


def test_a_session_without_a_jvm_is_used_as_it_is(connected: Any) -> None:
    """It is the session for every size."""
    assert not jvm.has_jvm(connected)
    assert session_for(connected, 0) is connected
    assert session_for(connected, 1 << 40) is connected


def test_files_are_reached_without_a_jvm(tmp_path: Path) -> None:
    """Behind a URI files are listed, read in part and written by this process."""
    uri = tmp_path.as_uri()
    arrow_files.write(f"{uri}/a/b.json", b"0123456789")
    (tmp_path / "a" / ".hidden").write_text("")
    place = arrow_files.ArrowPlace(uri)

    assert [(one.path, one.size_bytes) for one in place.files("a")] == [("a/b.json", 10)]
    assert list(place.files("absent")) == []
    assert place.ends("a/b.json", 10, 3) == (b"012", b"789")
    assert place.uri("a/b.json") == f"{uri}/a/b.json"
    assert arrow_files.read(f"{uri}/a/b.json") == b"0123456789"
    assert arrow_files.read(f"{uri}/a/c.json") is None


def test_results_are_moved_without_a_jvm(tmp_path: Path) -> None:
    """The one file of a folder replaces what was there, and a folder without one removes it."""
    mover, uri = arrow_files.ArrowMover(), tmp_path.as_uri()
    fresh, place = tmp_path / "fresh", tmp_path / "hour" / "rows.parquet"
    fresh.mkdir()
    (fresh / "part-0.parquet").write_text("new")

    mover.replace(f"{uri}/fresh", f"{uri}/hour/rows.parquet")
    moved = place.read_text()
    mover.replace(f"{uri}/fresh", f"{uri}/hour/rows.parquet")
    mover.remove(f"{uri}/fresh")
    mover.remove(f"{uri}/fresh")

    assert moved == "new"
    assert not place.exists()
    assert not fresh.exists()
    assert not mover.exists(f"{uri}/hour/rows.parquet")


# What crosses between PySpark and the JVM once, or in one call for many, is what would have crossed one by one.


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 31])
def test_a_list_of_columns_arrives_whole_and_in_order(spark: SparkSession, count: int) -> None:
    """A list of any length has all its elements in the JVM, in order."""
    names = [f"c{number}" for number in range(count)]
    values = [F.lit(number).alias(name) for number, name in enumerate(names)]

    found = spark.range(1).select(*values, "id").collect()[0].asDict()

    assert found == dict(zip(names, range(count), strict=True)) | {"id": 0}
    assert spark._jvm is not None
    assert spark._jvm.PythonUtils.toSeq(names).mkString(",") == ",".join(names)


def test_a_name_is_one_column_in_the_jvm(spark: SparkSession) -> None:
    """A column that is a name is made once, whatever query it stands in; another name is another column."""
    one, same, other = (cast(Any, F.col(name))._jc._get_object_id() for name in ("a", "a", "b"))

    assert one == same != other


class _Client:
    """The client of a gateway, but that it remembers what it is asked to release."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.queue: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def garbage_collect_object(self, target_id: str) -> None:
        self.queue.append(target_id)


def test_objects_are_released_many_at_a_time(spark: SparkSession) -> None:
    """What Python has released waits until there is enough of it; then all of it leaves the JVM, and nothing else."""
    gateway: Any = spark.sparkContext._gateway
    client: Any = _Client(gateway._gateway_client)
    bindings = gateway._gateway_client
    watched = SimpleNamespace(_gateway=SimpleNamespace(_gateway_client=client, jvm=gateway.jvm))
    release_together(cast(SparkSession, SimpleNamespace(sparkContext=watched)))
    objects = [gateway.jvm.java.lang.Object() for _ in range(_RELEASED_AT_ONCE + 1)]
    *released, kept = (each._get_object_id() for each in objects)

    client.garbage_collect_object(released[0])
    for each in released[:-1]:
        client.garbage_collect_object(each, False)
    held = _held(bindings, gateway, objects)
    client.garbage_collect_object("t", False)
    client.garbage_collect_object("GATEWAY_SERVER", False)
    client.garbage_collect_object(released[-1], False)

    assert released[0] in client.queue
    assert held == {*released, kept}
    assert _held(bindings, gateway, objects) == {kept}


def _held(client: Any, gateway: Any, objects: list[Any]) -> set[str]:
    """Which of the objects the JVM still has."""
    bindings = JavaObject("GATEWAY_SERVER", client).getGateway().getBindings()
    return {each._get_object_id() for each in objects if bindings.containsKey(each._get_object_id())}


# The output of an embedded Spark is passed on, except its start-up banner.


_PROGRAM = """
import subprocess, sys
from strandline_analytics.jvm_start import without_greetings
said = ["WARNING: Using incubator modules: jdk.incubator.vector", "spark: ERROR the disk is full", "",
        'Setting default log level to "WARN".', "Starting Streaming TransformWithStateInPandas Python worker.", "last"]
child = "import sys; sys.stderr.write(sys.argv[1])"
with without_greetings():
    started = subprocess.Popen([sys.executable, "-c", child, "\\n".join(said) + "\\n"])
started.wait()
sys.stderr.write("ours\\n")
import threading
[one.join(20) for one in threading.enumerate() if one.name == "jvm-words"]
"""


def test_lines_of_a_child_come_through_without_greetings() -> None:
    """Errors are printed, in order, and the program's own later output goes where it always went."""
    reported = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=True)

    assert sorted(reported.stderr.splitlines()) == ["last", "ours", "spark: ERROR the disk is full"]
    assert reported.stdout == ""
