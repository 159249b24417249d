"""`strandline analytics explain --group`: its answer as text and as a document, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result
from worked_histories import HISTORIES, history_rows
from written_export import write_export

from strandline.export.schema import COLUMNS

# Each query is planned from scratch, and the first one waits for the session.
pytestmark = pytest.mark.timeout(300)

Ask = Callable[..., Result]


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The export of a history in which groups rebalance."""
    root = tmp_path_factory.mktemp("export")
    blank = dict.fromkeys(column.name for column in COLUMNS)
    text = (HISTORIES / "rebalances.jsonl").read_text(encoding="utf-8")
    write_export(root, [blank | row for row in history_rows(text)])
    return root


def test_the_reasons_and_the_events_are_shown(analytics: Ask, export: Path) -> None:
    """As text with a line for each reason and what is not known; as a document with the same."""
    asked = ("explain", "-i", export, "--group", "orders", "--at", 24_000)
    text, document = analytics(*asked), analytics(*asked, "-o", "json")

    assert text.exit_code == 0, text.output
    assert "group orders at 1970-01-01T00:00:24" in text.stdout
    assert "- nobody had t-1: for 2.0 s by then" in text.stdout
    assert "not known: its lag" in text.stdout
    found = json.loads(document.stdout)
    assert [reason.split(":")[0] for reason in found["reasons"]] == ["it rebalanced", "nobody had t-1"]
    assert {link["name"] for link in found["links"]} == {"group", "member"}


def test_a_group_that_nobody_reported_is_refused(analytics: Ask, export: Path) -> None:
    """The message says where groups are listed."""
    found = analytics("explain", "-i", export, "--group", "nobody", "--at", 24_000)

    assert found.exit_code == 1
    assert "no event of a group nobody was read" in found.output


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (("--group", "g"), "name the moment with --at"),
        (("--group", "g", "--at", 1, "-t", "t"), "leave --topic out"),
        (("--group", "g", "--at", 1, "-p", 0), "leave --partition out"),
        (("--group", "g", "--at", 1, "--stall"), "leave --stall out"),
        (("--group", "g", "--at", 1, "--from", 1), "leave --from out"),
        (("-t", "t", "-p", 0, "--at", 1, "--stall"), "--at: takes --input, and none of --stall"),
        (("-t", "t", "-p", 0, "--at", 1, "-e", 3), "--at: takes --input, and none of --stall"),
        (("-t", "t"), "name a partition with --topic and --partition"),
    ],
)
def test_what_does_not_belong_together_is_refused(
    analytics: Ask, export: Path, words: tuple[object, ...], rule: str
) -> None:
    """A usage error that names the option and the remedy."""
    found = analytics("explain", "-i", export, *words)

    assert found.exit_code == 2
    assert rule in " ".join(found.output.split())
