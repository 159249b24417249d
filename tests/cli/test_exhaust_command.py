"""`strandline sim exhaust` searches a model, prints the trace, and exits as the result requires."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from strandline.cli.app import app

RUN = CliRunner()


def test_a_historic_rule_is_reported_in_words() -> None:
    """The loss of truncating to the HW is printed step by step, and is not a failure: it is the published one."""
    result = RUN.invoke(app, ["sim", "exhaust", "--model", "high-watermark", "--records", "2", "--trace"])

    assert result.exit_code == 0, result.output
    assert "the controller elects A, e0" in result.output
    assert "A appends m0/e0 at 0" in result.output
    assert "broken: StrongIsr" in result.output


def test_a_published_violation_that_is_not_found_fails() -> None:
    """With one leader epoch nothing can be truncated, so nothing is found, and the command reports that."""
    result = RUN.invoke(app, ["sim", "exhaust", "--model", "high-watermark", "--epochs", "0", "-o", "json"])

    assert result.exit_code == 1
    rows = json.loads(result.stdout)
    assert {row["found"] for row in rows} == {"holds"}


def test_an_unknown_model_is_refused() -> None:
    """An unknown model is rejected with the names of the existing ones."""
    result = RUN.invoke(app, ["sim", "exhaust", "--model", "kip-0"])

    assert result.exit_code == 2
    assert "leader-epoch" in result.stderr
