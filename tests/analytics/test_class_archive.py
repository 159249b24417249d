"""The archive of classes: made by one process, used by others, and never blocking any."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from strandline_analytics import jvm_start
from strandline_analytics.jvm_start import NoArchive, archive_path, jvm_options, make_archive

_LIMIT_S = 240
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
        capture_output=True, text=True, timeout=_LIMIT_S, check=False, env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip(), ran.stderr.strip()


@pytest.mark.timeout(2 * _LIMIT_S)
def test_what_one_process_archived_another_one_reads(cache: Path, tmp_path: Path) -> None:
    """Spark's classes come from the archive that the first process made, and neither process prints anything of it."""
    made, words = python(_MAKE)
    assert (Path(made), words) == (archive_path(), "")
    assert [path.name for path in archive_path().parent.iterdir()] == [archive_path().name]

    assert python(_USE, str(tmp_path / "loaded.log")) == ("9", "")

    loaded = (tmp_path / "loaded.log").read_text().splitlines()
    assert any("org.apache.spark.SparkContext source: shared objects file (top)" in line for line in loaded)


@pytest.mark.timeout(_LIMIT_S)
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
    jvm = subprocess.Popen(["sleep", str(_LIMIT_S)], stdin=subprocess.PIPE)
    gateway = SimpleNamespace(proc=jvm, shutdown=lambda: None)
    session = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=gateway), stop=lambda: None)

    def opened(options: tuple[str, ...]) -> Any:
        Path(options[0].partition("=")[2]).write_text("half of it")
        return session

    with pytest.raises(NoArchive, match=r"still writing it after 0\.1 s"):
        make_archive(opened, lambda _: None)

    assert jvm.poll() == -signal.SIGKILL
    assert list(archive_path().parent.iterdir()) == []
