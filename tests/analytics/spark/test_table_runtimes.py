"""Which PySpark can write which table format, and what is refused where none can."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest
import typer
from packaging.requirements import Requirement
from packaging.version import Version
from typer.testing import CliRunner, Result

from strandline.cli.app import app
from strandline_analytics.commands.answers import destination_of
from strandline_analytics.commands.serve import server_destination
from strandline_analytics.tables import ResultFormat, runtimes
from strandline_analytics.tables.destination import Destination
from strandline_analytics.tables.runtimes import RUNTIMES, NoRuntime, Runtime, runtime_for

ROOT = Path(__file__).parents[3]
TABLES = [ResultFormat.ICEBERG, ResultFormat.DELTA]
IDS = [one.package for one in RUNTIMES]


def run(*words: object, command: str = "run") -> Result:
    """`strandline analytics run`, or another one, over nothing, in this process."""
    return CliRunner().invoke(app, ["analytics", command, *map(str, words)], env={"COLUMNS": "400"})


@pytest.mark.parametrize(("command", "place"), [("run", "--out"), ("serve", "--results")])
@pytest.mark.parametrize("kind", TABLES)
def test_a_pyspark_without_a_runtime_is_refused_in_one_line(
    kind: ResultFormat, command: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line names the installed version and every pair that works, at the start; no Spark was started for it."""
    monkeypatch.setattr(f"strandline_analytics.commands.{command}.spark_session", never)
    if any(one.format is kind and Version(one.pyspark).release[:2] == Version(pyspark.__version__).release[:2]
           for one in RUNTIMES):  # fmt: skip
        pytest.skip(f"there is a runtime of {kind.value} for PySpark {pyspark.__version__}")
    reported = run("-i", tmp_path, place, tmp_path / "out", "--format", kind, command=command)
    (line,) = reported.output.splitlines()

    assert reported.exit_code == 1
    assert line.startswith(
        f"strandline: --format {kind.value}: no runtime for PySpark {pyspark.__version__} is known; these pairs work: "
    )
    assert all(one.shown in line for one in RUNTIMES)
    assert not (tmp_path / "out").exists()


def never(*_: object, **__: object) -> None:
    """In place of a session."""
    raise AssertionError("Spark was started")


@pytest.mark.parametrize("one", RUNTIMES, ids=IDS)
def test_a_runtime_counts_for_its_minor_version(one: Runtime) -> None:
    """Every patch of the PySpark that it was tested with takes it, and no other minor version."""
    major, minor = Version(one.pyspark).release[:2]

    assert runtime_for(one.format, version=f"{major}.{minor}.99") is one
    with pytest.raises(NoRuntime):
        runtime_for(one.format, version=f"{major}.99.0")


@pytest.mark.parametrize("one", RUNTIMES, ids=IDS)
def test_a_pair_is_of_a_pyspark_that_is_allowed(one: Runtime) -> None:
    """`pyproject.toml` allows the version, and the package is made for it, in the version of the format."""
    project = (ROOT / "pyproject.toml").read_text()
    (allowed,) = (Requirement(word) for word in project.split('"') if word.startswith("pyspark>"))

    assert one.pyspark in allowed.specifier
    assert f"{one.pyspark.rpartition('.')[0]}_2.13:{one.version}" in one.package


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--catalog", "lake"], "--catalog and --namespace are of tables"),
        (["--namespace", "ops"], "--catalog and --namespace are of tables"),
        ([], "--out is missing"),
        (["--format", "iceberg"], "--out is missing"),
        (["--format", "delta", "--out", "OUT", "--catalog", "lake"], "names tables of --format delta by their places"),
        (["--format", "orc", "--out", "OUT"], "'orc' is not one of 'parquet', 'iceberg', 'delta'"),
    ],
)
def test_options_that_do_not_go_together_are_refused(words: list[str], said: str, tmp_path: Path) -> None:
    """The message names the option, with exit code 2."""
    reported = run("-i", tmp_path, *words)

    assert reported.exit_code == 2
    assert said in " ".join(reported.output.replace("│", " ").split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--catalog", "lake"], "--catalog and --namespace are of tables"),
        (["--format", "delta", "--catalog", "lake"], "names tables of --format delta by their places"),
    ],
)
def test_a_server_refuses_them_as_well(words: list[str], said: str, tmp_path: Path) -> None:
    """They are those of `run`, but for the name of the place."""
    reported = run("-i", tmp_path, *words, command="serve")

    assert reported.exit_code == 2
    assert said in " ".join(reported.output.replace("│", " ").split())


def test_a_server_in_a_session_that_was_given_takes_no_place_of_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default place is that of files, and of a warehouse of our own; a given one is refused by its name."""
    of_files = server_destination(ResultFormat.PARQUET, None, None, None)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    of_tables = server_destination(ResultFormat.ICEBERG, None, "lake", "ops")

    assert of_files == Destination(out=str(Path("strandline-results").absolute()))
    assert of_tables == Destination(kind=ResultFormat.ICEBERG, out=None, catalog="lake", namespace="ops")
    assert server_destination(ResultFormat.PARQUET, "s3a://bucket/out", None, None).out == "s3a://bucket/out"
    with pytest.raises(typer.BadParameter, match=r"^--results: tables of --format iceberg lie where the session's"):
        server_destination(ResultFormat.ICEBERG, "here", None, None)


@pytest.fixture
def with_a_runtime(monkeypatch: pytest.MonkeyPatch) -> Callable[[ResultFormat], Runtime]:
    """Makes a pair for the installed PySpark, which need not have one."""

    def make(kind: ResultFormat) -> Runtime:
        made = Runtime(format=kind, version="9", pyspark=pyspark.__version__, package="g:a:9")
        monkeypatch.setattr(runtimes, "RUNTIMES", (made,))
        return made

    return make


def test_a_session_of_our_own_has_a_catalog_at_the_place_of_results(
    with_a_runtime: Callable[[ResultFormat], Runtime],
) -> None:
    """Iceberg's catalog has the name that was given and its warehouse at `--out`; the runtime comes from Maven."""
    with_a_runtime(ResultFormat.ICEBERG)
    found = destination_of(
        ResultFormat.ICEBERG, out="s3://bucket/out/", catalog="lake", namespace=None, is_given=False
    ).settings

    assert found["spark.jars.packages"] == "g:a:9"
    assert found["spark.sql.catalog.lake.warehouse"] == "s3a://bucket/out"


def test_a_session_that_was_given_needs_no_pair_and_gets_no_setting() -> None:
    """Its own runtime and catalog are used, whatever its PySpark; `--out` is refused there."""
    found = destination_of(ResultFormat.DELTA, out=None, catalog="lake", namespace="ops", is_given=True)

    assert (found.settings, found.catalog, found.namespace) == ({}, "lake", "ops")
    with pytest.raises(typer.BadParameter, match="lie where the session's catalog says"):
        destination_of(ResultFormat.DELTA, out="here", catalog=None, namespace=None, is_given=True)
