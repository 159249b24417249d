"""The page of an export that has states and no changes, as a collector of Kafka's makes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from reported_material import material, stall

from strandline_analytics.report.material import Material, incidents_of
from strandline_analytics.report.page import data, page
from strandline_analytics.report.verdict import verdict


def states(*, stalls: bool = False, under_replicated_us: int = 0) -> Material:
    """Nothing is recorded of changes: those figures are null in each row."""
    found = material(
        events=[], stalls=(stall(1_000, 3_000),) if stalls else (), under_replicated_us=under_replicated_us
    )
    blank: dict[str, Any] = {}
    for name in ("s07", "s08"):
        result = found.results[name]
        rows = [{**row, **dict.fromkeys((each.name for each in result.declared), None)} for row in result.rows]
        blank[name] = replace(result, rows=rows)
    return replace(found, results={**found.results, **blank})


def test_figures_of_changes_are_null_and_never_0() -> None:
    """What a collector cannot see is no count, in the figures for programs too."""
    found = states()
    figures = data(found, incidents_of(found))

    unseen = ("elections", "shrinks", "expands", "truncated_records", "committed_cut_records", "committed_lost_records")
    assert {name: figures[name] for name in unseen} == dict.fromkeys(unseen)
    facts = {fact.name: fact.shown for fact in page(found)["facts"]}
    shown = ("elections", "ISR shrinks", "ISR expands", "records cut from logs", "committed records lost")
    assert {name: facts[name] for name in shown} == dict.fromkeys(shown, "–")


def test_a_stall_is_no_proof_that_nothing_was_lost() -> None:
    """Elections between two looks are not seen, so the title does not say what they lost."""
    found = states(stalls=True)

    assert verdict(found, incidents_of(found), 1.0).headline.startswith(
        "No loss of committed records is known; 1 incident"
    )


@pytest.mark.parametrize(
    ("under_us", "headline"),
    [
        (0, "No trouble was seen; what happened between two looks is not recorded"),
        (2_000_000, "In trouble: t-0, up to 2 s of it"),
    ],
)
def test_a_window_without_incidents_is_not_called_calm(under_us: int, headline: str) -> None:
    """Nothing says that nothing happened, nor that trouble is older than the window."""
    found = states(under_replicated_us=under_us)

    assert (verdict(found, [], 1.0).headline, verdict(found, [], 1.0).tone) == (headline, "warn")
