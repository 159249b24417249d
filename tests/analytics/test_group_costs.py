"""What groups of a busy partition cost: the sum of their commits and of the rises of the HW, not the product."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from conftest import silver_of
from pyspark.sql import SparkSession
from worked_histories import history_rows

from strandline_analytics.scope import Scope
from strandline_analytics.silver.group_lags import group_spans, steps
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result

GROUPS, RISES, S = 20, 500, 1_000_000
SCOPE = Scope(start_us=0, end_us=60 * S)


def _crowd() -> str:
    """One partition whose HW rises 500 times in 50 s, and 20 groups that commit at 0 s and at 30 s."""
    snapshot = {"event_type": "STATE_SNAPSHOT", "partition_epoch": 1, "new_leader": 1, "new_isr": [1], "replicas": [1],
                "min_isr": 1}  # fmt: skip
    said: list[dict[str, object]] = [{"t": 0, **snapshot}]
    said += [
        {"t": at, "look": {"leader": 1, "hw": at // 100, "leo": {"1": at // 100}, "isr": [1]}, "interval_ms": 10_000}
        for at in range(0, 60_000, 10_000)
    ]
    said += [
        {"t": n * 100, "event_type": "HW_ADVANCE", "node_id": 1, "old_hw": n - 1, "new_hw": n,
         "first_us": n * 100_000, "last_us": n * 100_000}
        for n in range(1, RISES + 1)
    ]  # fmt: skip
    said += [
        {"t": at, "event_type": "GROUP_OFFSETS", "node_id": 1, "leader_epoch": None, "group_id": f"g{n:02}",
         "committed": at // 100, "commit_us": at * 1_000, "n_commits": 1, "n_error": {}}
        for n in range(GROUPS) for at in (0, 30_000)
    ]  # fmt: skip
    return "\n".join(map(json.dumps, said))


@pytest.mark.timeout(300)
def test_what_is_kept_of_groups_grows_by_their_commits(silver: Callable[[str], Silver]) -> None:
    """Two pieces for each group, for it committed twice, however often the HW rose meanwhile."""
    tables = silver(_crowd())

    assert steps(tables).count() >= RISES
    assert group_spans(tables).count() == 2 * GROUPS


@pytest.mark.timeout(300)
def test_figures_of_a_busy_partition_are_those_of_its_steps(silver: Callable[[str], Silver]) -> None:
    """Each group was behind from 0.1 s on, up to 30 s long, and from 30.1 s on: the mean and maximum of S22 by hand."""
    tables = silver(_crowd())
    rows = result(ALL["s22"], tables, SCOPE).collect()

    assert {(row.max_us, row.estimated_us, row.coverage) for row in rows} == {(29.9 * S, 0, 1.0)}
    assert [row.mean_us for row in rows] == pytest.approx([29.9e6**2 / 60e6] * GROUPS, rel=1e-12)


@pytest.mark.timeout(300)
def test_statistics_of_time_never_follow_each_step_for_each_group(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S22 and S24 are answered without the table of all steps for all groups, which S21 alone asks for."""
    asked: list[str] = []
    plan = Silver.plan

    def noted(self: Silver, name: tuple[object, ...], make: Callable[[], object]) -> object:
        asked.append(str(name[0]))
        return plan(self, name, make)

    monkeypatch.setattr(Silver, "plan", noted)
    tables = silver_of(spark, history_rows(_crowd()))
    for name in ("s22", "s24"):
        result(ALL[name], tables, SCOPE).collect()
    before = list(asked)
    result(ALL["s21"], tables, SCOPE).collect()
    tables.release()

    assert ("group lags" in before, "group lags" in asked) == (False, True)
