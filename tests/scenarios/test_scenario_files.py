"""Every scenario file passes, and its first lines say what it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from strandline_sim.scenario.language import shipped
from strandline_sim.scenario.run import run_file

FILES = shipped()

TRACES = {f"tr{number:02}" for number in (*range(1, 22), *range(31, 35), 37, 47)} | {"tr02b", "tr03b", "tr04b"}
"""The traces of docs/PROTOCOL.md."""
WHOLE_CLUSTER = {"t36": "e_t36", "t37": "tr02b", "t40": "e_t40", "t41": "tr01 tr02", "t42": "e_t42"}
"""Where the edge cases of a whole cluster are reported: T37 is TR2b, T41 is TR1 and TR2."""
REPRODUCED = {
    "tr01": "high_watermark", "tr02": "high_watermark", "tr02b": "high_watermark", "tr03": "kip_101",
    "tr03b": "kip_101", "tr04": "kip_279", "tr07": "kip_279", "tr08": "kip_279", "tr11": "unclean_unnoticed",
}  # fmt: skip
"""Traces whose bad end a historic rule brings about, and how the file is called that shows it."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_scenario_comes_true(path: Path) -> None:
    """Each command prints exactly the lines under it, and each claim holds."""
    transcript = run_file(path)

    assert transcript.text() == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_scenario_opens_with_a_drawing(path: Path) -> None:
    """The comment at the top has a title and a drawing of the logs, at least three lines before the first command."""
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    opening = lines[: next(i for i, line in enumerate(lines) if line and not line.startswith("#"))]

    assert len([line for line in opening if line.strip("# ")]) >= 3
    assert any("|" in line or "[" in line for line in opening)


def test_every_trace_and_edge_case_is_reported() -> None:
    """Each trace has a file, each edge case of a whole cluster has one, and so has each table."""
    reported = {path.stem.split("_")[0] for path in FILES}
    begins = [path.stem for path in FILES]

    assert reported >= TRACES
    for files in WHOLE_CLUSTER.values():
        assert all(any(stem.startswith(prefix) for stem in begins) for prefix in files.split())
    assert sum(stem.startswith("table_") for stem in begins) >= 5


@pytest.mark.parametrize(("trace", "rule"), REPRODUCED.items())
def test_the_bad_end_is_reproduced(trace: str, rule: str) -> None:
    """Under the rule that fails a trace the transcript shows a broken property, and claims that it is broken."""
    bad = (FILES[0].parent / f"{trace}_{rule}.scenario").read_text(encoding="utf-8")

    assert "  !! I" in bad
    assert re.search(r"^expect-invariant I\d+ broken$", bad, re.MULTILINE)
