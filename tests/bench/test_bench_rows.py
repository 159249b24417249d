"""A measurement that fails is named on the page, and the others go on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench import Bench
from child import output_of
from plan import SMOKE
from servers import Servers
from used_memory import UsedMemory


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Means of a run without any server."""
    return Bench(SMOKE, Servers(tmp_path, 0.0, print), tmp_path, print)


def fails() -> Mapping[str, Any]:
    """A party whose client ends with an error."""
    output_of(["sh", "-c", "echo first >&2; echo the reason >&2; exit 3"], 10)
    return {}


def test_a_failed_measurement_is_a_note(bench: Bench) -> None:
    """It leaves no row and its last line of error; the next measurement has its row."""
    rows = [
        *bench.row(fails, round=0, party="NATS"),
        *bench.row(lambda: {"steal_percent": 0.0}, round=1, party="NATS"),
    ]

    assert rows == [{"round": 1, "party": "NATS", "figures": {"steal_percent": 0.0}}]
    assert bench.notes == ["round 0, NATS failed: the reason"]


def test_a_disturbed_measurement_is_no_row(bench: Bench) -> None:
    """What the host disturbed twice is dropped by name."""
    assert list(bench.row(lambda: {"steal_percent": 50.0}, round=0, consumers=10)) == []
    assert bench.steady.dropped == ["round 0, consumers 10"]
    assert bench.notes == []


@pytest.mark.parametrize(("fills", "order"), [(True, ["fill", "measure"]), (False, ["measure"])])
def test_memory_is_filled_before_a_measurement(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, fills: bool, order: list[str]
) -> None:
    """A run that counts fills free memory each time before it measures; a smoke run does not."""
    done: list[str] = []

    def measure() -> Mapping[str, Any]:
        done.append("measure")
        return {"steal_percent": 0.0}

    monkeypatch.setattr(UsedMemory, "fill", lambda _: done.append("fill"))
    bench.plan = replace(bench.plan, fills_memory=fills)
    list(bench.row(measure, round=0, party="NATS"))

    assert done == order
