"""How the options of `strandline analytics` are parsed, and the errors of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline_analytics.commands.options import grouping_of, window_us
from strandline_analytics.scope import Grouping


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
    assert all(f"s{number:02}" in ran.stdout for number in range(1, 28))
