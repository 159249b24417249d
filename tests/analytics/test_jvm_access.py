"""What the analytics do with a session whose JVM cannot be reached, and that nothing else of theirs reaches for one."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, NoReturn

import pytest
from pyspark.errors import PySparkAttributeError

from strandline_analytics import jvm
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
