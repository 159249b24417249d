"""The output of the interactive commands on a simulated cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from strandline.cli.app import app

# Each query is planned from scratch, and the first one waits for the session.
pytestmark = pytest.mark.timeout(300)

SEED = 7
Ask = Callable[..., Result]


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulated cluster's export."""
    root = tmp_path_factory.mktemp("export")
    result = CliRunner().invoke(app, ["sim", "replay", str(SEED), "--export", str(root)])
    assert result.exit_code == 0, result.output
    return root


@pytest.fixture(scope="module")
def exported(export: Path) -> list[dict[str, Any]]:
    """The transitions in the files."""
    lines = [line for path in export.rglob("transitions/**/*.jsonl") for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


def answered(result: Result, code: int = 0) -> Any:
    """The document on stdout."""
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_a_timeline_has_every_decision_of_the_files_in_the_order_of_partition_epochs(
    analytics: Ask, export: Path, exported: list[dict[str, Any]]
) -> None:
    """The controller's leader changes, once each, with its sentence."""
    found = answered(analytics("timeline", "-i", export, "--type", "LEADER_CHANGE", "-o", "json"))
    written = [row["partition_epoch"] for row in exported if row["event_type"] == "LEADER_CHANGE"]

    assert [row["partition_epoch"] for row in found] == sorted(written)
    assert all("lead" in row["sentence"] for row in found)


def test_explain_tells_one_change_and_lists_several(
    analytics: Ask, export: Path, exported: list[dict[str, Any]]
) -> None:
    """With an epoch, the chain of the last leader change, also as a table; without one the candidates."""
    change = max((r for r in exported if r["event_type"] == "LEADER_CHANGE"), key=lambda r: r["partition_epoch"])
    where = ("-i", export, "-t", change["topic"], "-p", change["partition"])
    chain = answered(analytics("explain", *where, "-e", change["partition_epoch"], "-o", "json"))

    assert chain["partition_epoch"] == change["partition_epoch"]
    assert any(f"epoch {change['new_leader_epoch']}" in link["reported"] for link in chain["links"])
    assert [link["t_us"] for link in chain["links"]] == sorted(link["t_us"] for link in chain["links"])
    several = analytics("explain", *where)
    assert several.exit_code == 0
    assert "several decisions fit; name one with --partition-epoch" in several.stderr


def test_explain_refuses_a_stall_with_an_epoch_and_a_partition_that_is_not_there(analytics: Ask, export: Path) -> None:
    """Wrong usage is 2, nothing found is 1; both print the remedy."""
    both = analytics("explain", "-i", export, "-t", "t", "-p", 0, "--stall", "-e", 3)
    assert both.exit_code == 2
    assert "--from and --to" in both.output
    nowhere = analytics("explain", "-i", export, "-t", "t", "-p", 99)
    assert nowhere.exit_code == 1
    assert "no decision fits; see: strandline analytics timeline" in nowhere.output


def test_statistics_are_those_of_the_files_and_a_threshold_ends_with_3(
    analytics: Ask, export: Path, exported: list[dict[str, Any]]
) -> None:
    """Shrinks counted in the files and by the command; --fail-on holds for them, and not beyond them."""
    shrinks = sum(
        row["event_type"] == "ISR_CHANGE" and row["node_id"] == -1 and bool(set(row["old_isr"]) - set(row["new_isr"]))
        for row in exported
    )
    reported = analytics("stats", "s08", "-i", export, "-o", "json", "--fail-on", f"shrinks>={shrinks}")
    assert [row["shrinks"] for row in answered(reported, code=3)] == [shrinks]
    assert analytics("stats", "s08", "-i", export, "--fail-on", f"shrinks>{shrinks}").exit_code == 0


def test_coverage_counts_what_each_emitter_wrote(analytics: Ask, export: Path) -> None:
    """One hour with every line of every file, and as many emitters as incarnations wrote."""
    lines = [json.loads(line) for path in export.rglob("*.jsonl") for line in path.read_text().splitlines()]
    (hour,) = answered(analytics("coverage", "-i", export, "-o", "json"))

    assert (hour["events"], hour["missing"], hour["copies"]) == (len(lines), 0, 0)
    assert hour["emitters"] == len({(row["node_id"], row["incarnation"]) for row in lines})
