"""The demo fails if the report does not agree with what the demo saw."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.cli.demo.ledgers import Silence
from strandline.cli.demo.verify import agreement
from strandline.cli.demo.watch import Election


def story(directory: Path) -> Any:
    """A demo that saw one failover of p1, no acks from 10 s to 10.3 s, one shrink, two expands, and 7 records cut."""
    cut = {"event_type": "TRUNCATION", "node_id": 1, "incarnation": 2, "seq": 1, "topic_id": "T", "partition": 1,
           "from_leo": 17, "to_leo": 10}  # fmt: skip
    (directory / "events.jsonl").write_text(json.dumps(cut) + "\n")
    watch = SimpleNamespace(
        elections=[Election(partition=1, old=1, new=2, leader_epoch=1, at_ms=10_200.0)],
        shrinks=1,
        expands=2,
        skipped=0,
        partitions=[SimpleNamespace(tp=SimpleNamespace(topic_id="T"))],
    )
    load = SimpleNamespace(acks=SimpleNamespace(silences=(Silence(1, 10_000.0, 10_300.0),)))
    return SimpleNamespace(watch=watch, load=load, cluster=SimpleNamespace(directory=directory))


def figures(*, fence_ms: float = 10_100.0, start_ms: float = 10_200.0, **other: Any) -> dict[str, Any]:
    """The figures of a report that agrees, except for ``other``; times of the monotonic clock."""
    to_wall_us = time.time_ns() // 1_000 - time.monotonic_ns() // 1_000
    failover = {
        "partition": 1,
        "fence_us": fence_ms * 1000 + to_wall_us,
        "epoch_start_us": start_ms * 1000 + to_wall_us,
    }
    return {"elections": 1, "shrinks": 1, "expands": 2, "truncated_records": 7, "failovers": [failover]} | other


def test_equal_figures_agree(tmp_path: Path) -> None:
    """Every check holds where demo and report saw the same."""
    assert [check.sentence for check in agreement(story(tmp_path), figures()) if not check.held] == []


@pytest.mark.parametrize("name", ["elections", "shrinks", "expands", "truncated_records"])
def test_a_count_that_differs_fails(tmp_path: Path, name: str) -> None:
    """One more or one less is a mismatch, and so is an unknown count."""
    for wrong in (figures()[name] + 1, figures()[name] - 1, None):
        failed = [check for check in agreement(story(tmp_path), figures(**{name: wrong})) if not check.held]

        assert len(failed) == 1
        assert name.replace("_", " ") in failed[0].sentence


@pytest.mark.parametrize(("fence_ms", "start_ms"), [(9_990.0, 10_200.0), (10_100.0, 10_310.0)])
def test_a_failover_outside_of_the_silence_fails(tmp_path: Path, fence_ms: float, start_ms: float) -> None:
    """No node was allowed to give an ack between fence and epoch start."""
    (failed,) = [c for c in agreement(story(tmp_path), figures(fence_ms=fence_ms, start_ms=start_ms)) if not c.held]

    assert "not p1" in failed.shown


def test_a_partition_without_a_noted_silence_is_not_judged(tmp_path: Path) -> None:
    """Nothing was late there, so there is no gap to lie in; a late ack of another partition proves nothing."""
    short = agreement(story(tmp_path), figures(fence_ms=20_000.0, start_ms=20_010.0))

    assert [check.sentence for check in short if "acks" in check.sentence] == []


def test_no_failover_and_no_report_fail(tmp_path: Path) -> None:
    """A report without the failover, or none at all, proves nothing."""
    assert not all(check.held for check in agreement(story(tmp_path), figures(failovers=[])))
    assert [check.held for check in agreement(story(tmp_path), {"trouble": "out of memory"})] == [False]
