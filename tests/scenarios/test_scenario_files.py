"""Every scenario file comes true, and says on its first lines what it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.sim.scenario.run import run_file

FILES = sorted(Path(__file__).parent.glob("*.scenario"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_scenario_comes_true(path: Path) -> None:
    """Each command prints exactly the lines under it, and each claim holds."""
    transcript = run_file(path)

    assert transcript.text() == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_scenario_opens_with_a_drawing(path: Path) -> None:
    """The comment on top has a title and a drawing of the logs, at least three lines before the first command."""
    lines = path.read_text(encoding="utf-8").splitlines()[1:]
    opening = lines[: next(i for i, line in enumerate(lines) if line and not line.startswith("#"))]

    assert len([line for line in opening if line.strip("# ")]) >= 3
    assert any("|" in line or "[" in line for line in opening)
