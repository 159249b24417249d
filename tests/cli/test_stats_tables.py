"""Statistics as tables for people: narrow enough for a terminal, and what all rows share is said once."""

from __future__ import annotations

from typing import Any

import pytest

from strandline_analytics.commands.answers import show_answers
from strandline_analytics.commands.options import Shown
from strandline_analytics.stats import ALL

_CLUSTER = "5e8a0f52-0000-4000-8000-000000000000"

_TERMINAL = 200
"""Columns of a wide terminal."""


def _row(stat: str, partition: int, *, start_us: int = 0) -> dict[str, Any]:
    values = {value.name: 7 for value in ALL[stat].values}
    row = {"stat": stat, "cluster_id": _CLUSTER, "topic_id": "T", "topic": "t", "partition": partition}
    flaws = {"n_zombie": 0, "n_duplicate": 0, "n_gap": 0, "clock_regressions": 0}
    return row | {"window_start": start_us, "window_end": 60_000_000} | values | {"coverage": 1.0} | flaws


def _shown(rows: list[dict[str, Any]], form: Shown, capsys: pytest.CaptureFixture[str]) -> list[str]:
    show_answers([(ALL[rows[0]["stat"]], rows)], form)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_what_all_rows_share_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Cluster and window stand in the title, and in no row; the widest statistic fits a terminal."""
    lines = _shown([_row("s07", 0), _row("s07", 1)], Shown.TABLE, capsys)

    assert lines[0].endswith(f"({_CLUSTER}, 1970-01-01T00:00:00Z to 1970-01-01T00:01:00Z)")
    assert not any(_CLUSTER in line for line in lines[1:])
    assert max(len(line) for line in lines[1:]) <= _TERMINAL
    assert sum(line.startswith("t ") for line in lines) == 2


def test_rows_of_several_windows_have_theirs(capsys: pytest.CaptureFixture[str]) -> None:
    """With two windows, each row has its own, and the title none."""
    lines = _shown([_row("s08", 0), _row("s08", 0, start_us=30_000_000)], Shown.TABLE, capsys)

    assert lines[0] == f"s08 {ALL['s08'].name}: {ALL['s08'].title}"
    assert sum("1970-01-01T00:00:30Z" in line for line in lines) == 1


def test_a_long_name_is_broken_behind_an_underscore(capsys: pytest.CaptureFixture[str]) -> None:
    """A name is never cut within a word, so that --where can take it as it stands."""
    words = {word for line in _shown([_row("s07", 0)], Shown.TABLE, capsys) for word in line.split()}

    assert {"committed_", "lost_records"} <= words
