"""How the options of `strandline analytics` are read, and how wrong ones end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from strandline.cli.analytics_options import grouping_of, moment_us, step_us, time_text
from strandline.cli.app import app
from strandline_analytics.scope import Grouping


@pytest.mark.parametrize(
    "text", ["2026-11-21T14:00:00Z", "2026-11-21T15:00:00+01:00", "2026-11-21T14:00", "1795269600000"]
)
def test_a_time_may_be_told_in_several_ways(text: str) -> None:
    """RFC 3339 with any offset, UTC where there is none, or milliseconds since 1970."""
    assert moment_us(text, "--from") == 1_795_269_600_000_000


def test_a_time_may_be_told_from_now_backwards() -> None:
    """`-2h` is two hours ago."""
    before_us = time.time_ns() // 1_000
    told_us = moment_us("-2h", "--from")
    after_us = time.time_ns() // 1_000

    assert told_us is not None
    assert before_us <= told_us + 7_200_000_000 <= after_us


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01T00:00:00Z", "-2 hours"])
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    """The message names the option and shows each form."""
    with pytest.raises(typer.BadParameter, match=r"--from.*-2h"):
        moment_us(text, "--from")


def test_a_time_is_shown_as_it_may_be_told() -> None:
    """What is printed can be given back."""
    for us in (0, 1_795_269_600_000_000, 1_795_269_600_000_001):
        assert moment_us(time_text(us), "--from") == us


@pytest.mark.parametrize(("text", "us"), [("hour", 3_600_000_000), ("5m", 300_000_000), (None, None)])
def test_a_step_has_a_name_or_a_length(text: str | None, us: int | None) -> None:
    """The forms of `--step`."""
    assert step_us(text) == us


@pytest.mark.parametrize(
    ("text", "grouping"),
    [("topic,partition", Grouping.PARTITION), ("topic", Grouping.TOPIC), ("cluster", Grouping.CLUSTER)],
)
def test_the_groupings_are_named_by_their_keys(text: str, grouping: Grouping) -> None:
    """The forms of `--group-by`."""
    assert grouping_of(text) is grouping


@pytest.mark.parametrize(
    "arguments",
    [
        ["stats", "s10"],
        ["stats", "s99", "--input", "."],
        ["stats", "s10", "--input", ".", "--fail-on", "nothing>0"],
        ["stats", "s10", "--input", ".", "--from", "5", "--to", "4"],
        ["run", "--input", "no-such-directory", "--output", "x"],
        ["run", "--input", ".", "--output", "x", "--step", "5m"],
    ],
)
def test_a_wrong_question_ends_with_2(arguments: list[str]) -> None:
    """Before Spark is started."""
    assert CliRunner().invoke(app, ["analytics", *arguments]).exit_code == 2


def test_without_java_one_line_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The line names what to install."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    ran = CliRunner().invoke(app, ["analytics", "coverage", "--input", str(tmp_path)])

    assert ran.exit_code == 1
    assert "Java 17" in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1


def test_the_list_of_statistics_needs_no_input() -> None:
    """`stats` alone lists all twenty."""
    ran = CliRunner().invoke(app, ["analytics", "stats"])

    assert ran.exit_code == 0
    assert all(f"s{number:02}" in ran.stdout for number in range(1, 21))
