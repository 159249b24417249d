"""Options of `strandline analytics`, conditions on rows of statistics, and which versions of PySpark are allowed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
import typer
from packaging.requirements import Requirement
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline_analytics.commands.options import grouping_of, window_us
from strandline_analytics.jobs.ask import Threshold
from strandline_analytics.pyspark_range import NeedsNewerSpark, check_streams
from strandline_analytics.scope import Grouping
from strandline_analytics.sources.trouble import explained


def test_a_window_has_two_ends() -> None:
    """Times in any form, or none at either end; an end that is not after the start is rejected."""
    assert window_us("2026-11-21T14:00", "1795269601000") == (1_795_269_600_000_000, 1_795_269_601_000_000)
    assert window_us(None, None) == (None, None)
    with pytest.raises(typer.BadParameter, match="after --from"):
        window_us("5", "5")


@pytest.mark.parametrize(
    ("text", "grouping"),
    [("topic,partition", Grouping.PARTITION), ("topic", Grouping.TOPIC), ("cluster", Grouping.CLUSTER)],
)
def test_the_groupings_are_named_by_their_keys(text: str, grouping: Grouping) -> None:
    """`--group-by` accepts each of its forms."""
    assert grouping_of(text) is grouping


@pytest.mark.parametrize(
    "arguments",
    [
        ["stats", "s10"],
        ["stats", "s99", "--input", "."],
        ["stats", "s10", "--input", ".", "--fail-on", "nothing>0"],
        ["stats", "s10", "--input", ".", "--from", "5", "--to", "4"],
        ["run", "--input", "no-such-directory", "--out", "x"],
        ["run", "--input", ".", "--out", "x", "--step", "5m"],
    ],
)
def test_a_wrong_question_ends_with_2(arguments: list[str]) -> None:
    """A wrong request ends with exit code 2 before Spark is started."""
    assert CliRunner().invoke(app, ["analytics", *arguments]).exit_code == 2


def test_without_java_one_line_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without Java one line names what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    ran = CliRunner().invoke(app, ["analytics", "coverage", "--input", str(tmp_path)])

    assert ran.exit_code == 1
    assert "Java 17" in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


def test_the_list_of_statistics_needs_no_input() -> None:
    """`stats` alone lists all of them."""
    ran = CliRunner().invoke(app, ["analytics", "stats"])

    assert ran.exit_code == 0
    assert all(f"s{number:02}" in ran.stdout for number in range(1, 30))


# Conditions on the rows of statistics: units, and unknown values.


@pytest.mark.parametrize(
    ("text", "row", "holds"),
    [
        ("under_min_ms>0", {"under_min_us": 1}, True),
        ("under_min_ms>1", {"under_min_us": 1_000}, False),
        ("under_min_s >= 2", {"under_min_us": 2_000_000}, True),
        ("removals=3", {"removals": 3}, True),
        ("under_min_ms>0", {"under_min_us": None}, False),
    ],
)
def test_a_condition_is_asked_in_the_unit_of_its_name(text: str, row: dict[str, int | None], holds: bool) -> None:
    """`_ms` and `_s` name the same column as `_us`; an unknown value fulfils no condition."""
    assert Threshold.parse(text).holds(row) is holds


@pytest.mark.parametrize("text", ["", "under_min", "under min > 0", "x>y"])
def test_what_is_no_condition_is_refused_with_an_example(text: str) -> None:
    """An invalid condition is rejected with a message that shows the valid forms."""
    with pytest.raises(ValueError, match="under_min_ms>0"):
        Threshold.parse(text)


def test_a_condition_may_name_its_statistic() -> None:
    """`s8.` and `s08.` mean the same statistic."""
    assert Threshold.parse("s8.removals>0").stat == Threshold.parse("s08.removals>0").stat == "s08"


# Which versions of PySpark are allowed, and what the oldest of them refuses.


ROOT = Path(__file__).parents[2]


def test_an_older_pyspark_refuses_streams_in_one_sentence() -> None:
    """PySpark 4.1 says which version is needed, which one is there, and what works."""
    with pytest.raises(NeedsNewerSpark) as caught:
        check_streams("use spark.read", version="4.1.4")

    assert str(caught.value) == "reading as a stream needs PySpark 4.2 or newer, and this is 4.1.4; use spark.read"
    assert explained(caught.value) is caught.value


@pytest.mark.parametrize("version", ["4.2.0", "4.2.1.dev3", "4.3.0", "5.0.0"])
def test_newer_ones_read_streams(version: str) -> None:
    """From 4.2 on nothing is refused."""
    check_streams("use spark.read", version=version)


def test_the_range_is_what_was_tested() -> None:
    """PySpark 4.1 to 4.3 can be installed beside Strandline, and no other minor version."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (spark,) = [need for need in map(Requirement, extras["analytics"]) if need.name == "pyspark"]

    assert [minor for minor in range(6) if f"4.{minor}.1" in spark.specifier] == [1, 2, 3]
    assert "3.5.9" not in spark.specifier
