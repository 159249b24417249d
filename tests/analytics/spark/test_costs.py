"""What queries cost Spark: jobs, shuffles, tables that are released or shared, and sums instead of products."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import silver_of
from executed_plan import KEPT, SHUFFLE, paths
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.classic.dataframe import DataFrame as DataFrameJobs
from worked_histories import HISTORIES, history_rows
from written_export import write_export

from strandline.export.encoding import ExportFormat
from strandline_analytics.report.gather import gather
from strandline_analytics.scope import Scope
from strandline_analytics.session import MIDDLE_BYTES, carried_out_in, session_for
from strandline_analytics.silver.groups import group_spans, steps
from strandline_analytics.silver.kept import PLACE
from strandline_analytics.silver.tables import Silver
from strandline_analytics.sources.exports import open_exports
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import Statistic, result
from strandline_analytics.stats.s18_stalls import heights
from strandline_analytics.stats.together import AT_ONCE, together

_ASKED = [(ALL[name], Scope(start_us=0, end_us=60_000_000)) for name in ("s16", "s08", "s10", "s15", "s13", "s14")]
_NAMES = [statistic.id for statistic, _ in _ASKED]


@pytest.fixture
def _results_of_one_column(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result of a statistic is a column with its id: what it computes has tests of its own, which take longer."""

    def named(statistic: Statistic, silver: Silver, scope: Scope) -> DataFrame:
        assert (statistic, scope) in _ASKED
        return silver.transitions.select(F.lit(0).alias(statistic.id))

    monkeypatch.setattr("strandline_analytics.stats.together.result", named)


@pytest.fixture
def tables(silver: Callable[[str], Silver]) -> Silver:
    """Tables of a partition that one replica leads."""
    return silver(
        '{"t": 0, "event_type": "LEADER_CHANGE", "new_leader": 1, "leader_epoch": 0, "partition_epoch": 0,'
        ' "new_isr": [1, 2], "replicas": [1, 2], "min_isr": 1}'
    )


@pytest.mark.usefixtures("_results_of_one_column")
def test_answers_come_in_the_order_of_the_questions(tables: Silver) -> None:
    """In any order of completion, each answer is in the position of its request."""
    others_began = threading.Barrier(AT_ONCE)
    first = [_NAMES[place] for place in range(AT_ONCE)]

    def take(statistic: Statistic, frame: DataFrame) -> str:
        (name,) = frame.columns
        assert name == statistic.id
        if name in first:
            # This many are requested at once; a single thread would wait here for ever.
            others_began.wait(timeout=60)
        return name

    assert list(together(tables, _ASKED, take)) == _NAMES


@pytest.mark.usefixtures("_results_of_one_column")
def test_queries_bear_the_tags_of_whoever_asks(spark: SparkSession, tables: Silver) -> None:
    """A job tag that was set before is on the queries of every thread."""
    context = spark.sparkContext
    context.addJobTag("a-job")
    try:
        found = list(together(tables, _ASKED, lambda *_: "a-job" in context.getJobTags()))
    finally:
        context.removeJobTag("a-job")

    assert found == [True] * len(_ASKED)


@pytest.mark.usefixtures("_results_of_one_column")
def test_a_failure_is_raised_in_its_place(tables: Silver) -> None:
    """Requests before one that fails are answered, and the caller handles the failure."""

    def take(statistic: Statistic, _: DataFrame) -> str:
        if statistic is _ASKED[1][0]:
            raise LookupError("of the second")
        return "an answer"

    answers = together(tables, _ASKED, take)

    assert next(answers) == "an answer"
    with pytest.raises(LookupError, match="of the second"):
        next(answers)


@pytest.mark.usefixtures("_results_of_one_column")
def test_a_table_that_all_ask_for_is_made_once(tables: Silver) -> None:
    """Any number of threads may request a cached table first: its maker is called once, and all get its result."""
    began, made = threading.Barrier(AT_ONCE), []

    def make() -> DataFrame:
        made.append(tables.transitions.select("seq"))
        return made[-1]

    def take(*_: object) -> int:
        began.wait(timeout=60)
        return id(tables.keep(("seq",), make))

    found = list(together(tables, _ASKED[:AT_ONCE], take))

    assert (len(made), len(set(found))) == (1, 1)


# What groups of a busy partition cost: the sum of their commits and of the rises of the HW, not the product.


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


# How much Spark is asked to do for a report over little input: a count, which no busy machine changes.


MOST_JOBS = len(ALL) + 18
"""One for each statistic, other question, and table that several read; a broadcast or a shuffle's own would be more."""


MOST_STAGES = 135
MOST_FRAMES = 800
"""Spark analyses the whole query whenever a frame is made of another: over little input, half of a report's time."""


def _numbers(spark: Any) -> tuple[int, int]:
    """How many jobs and stages there have been."""
    jobs = spark.sparkContext.statusTracker()
    spark.range(1).count()
    newest = max(jobs.getJobIdsForGroup(None))
    return newest, max(jobs.getJobInfo(newest).stageIds)


@pytest.mark.timeout(600)
def test_a_report_over_little_is_few_jobs(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A report with its courses is at most `MOST_JOBS` Spark jobs, `MOST_STAGES` stages, `MOST_FRAMES` frames."""
    rows = history_rows((HISTORIES / "failover.jsonl").read_text(encoding="utf-8"))
    write_export(tmp_path, rows, ExportFormat.PARQUET)
    made: list[int] = []
    initialised = DataFrameJobs.__init__

    def counted(frame: DataFrameJobs, *arguments: Any) -> None:
        # PySpark 4.1 initialises each frame twice.
        if not vars(frame):
            made.append(id(frame))
        initialised(frame, *arguments)

    monkeypatch.setattr(DataFrameJobs, "__init__", counted)
    before = _numbers(spark)

    material = gather(open_exports(spark, [str(tmp_path)]), [str(tmp_path)])

    jobs, stages = (now - then for now, then in zip(_numbers(spark), before, strict=True))
    assert 20 < jobs <= MOST_JOBS
    assert stages <= MOST_STAGES
    assert 200 < len(made) <= MOST_FRAMES
    # Without a topic of coordinators there is nothing to ask about, and the page still has those statistics.
    empty = {name for name, found in material.results.items() if not found.rows}
    assert empty >= {"s21", "s22", "s23", "s24", "s25", "s26", "s27"}
    assert list(material.results) == list(ALL)


# What a query of much input shuffles: sums of samples, and not again the rows that lie by partition already.


SCOPE_SHUFFLES = Scope(start_us=0, end_us=60_000_000)


@pytest.fixture(scope="module")
def tables_shuffles(spark: SparkSession) -> Iterator[Silver]:
    """Silver tables whose queries are planned as for more than a GiB of files.

    They are made in a session of that size: one for little input drops the hints to broadcast.
    """
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr("strandline_analytics.session._FITTED", {})
        alone, both = (session_for(spark.newSession(), size) for size in (MIDDLE_BYTES, MIDDLE_BYTES + 1))
    # What is kept is measured as it is made, and so little would be sent to every task.
    both.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    found = silver_of(both, history_rows((HISTORIES / "lag.jsonl").read_text(encoding="utf-8")))
    yield replace(found, fit=lambda query, samples: carried_out_in(both if samples else alone, query))
    assert found.samples is not None
    found.samples.unpersist()
    found.release()


@pytest.mark.parametrize("name", ["s01", "s02", "s03", "s06"])
def test_looks_are_added_up_where_they_lie(name: str, tables_shuffles: Silver) -> None:
    """Between looks and a result there is one shuffle, of the finished figures, which are joined with their windows."""
    shuffles = [path.count(SHUFFLE) for path in paths(result(ALL[name], tables_shuffles, SCOPE_SHUFFLES))]

    assert max(shuffles) == 1


def test_the_age_of_records_reads_looks_once(tables_shuffles: Silver) -> None:
    """S3 reads three kept tables: looks, the windows of its result, and the names of partitions."""
    leaves = [path[-1] for path in paths(result(ALL["s03"], tables_shuffles, SCOPE_SHUFFLES))]

    assert leaves == [KEPT] * 3


def test_looks_and_advances_meet_where_they_lie(tables_shuffles: Silver) -> None:
    """What S18 groups by height of the HW is looks and advances, and neither is shuffled for it."""
    grouped = heights(tables_shuffles).groupBy(PLACE, "leader_epoch", "incarnation", "hw").count()

    query = tables_shuffles.fit(grouped, True)

    assert [path.count(SHUFFLE) for path in paths(query)] == [0, 0]


def test_advances_are_not_shuffled_for_followers(tables_shuffles: Silver) -> None:
    """S20 shuffles what followers saw, but of advances only the finished figures, to join them with windows."""
    united = [path for path in paths(result(ALL["s20"], tables_shuffles, SCOPE_SHUFFLES)) if "Union" in path]

    assert min(path.count(SHUFFLE) for path in united) == 1


# Released tables take no memory: a server, or a run over many hours, opens thousands of them.


_STORY = (HISTORIES / "failover.jsonl").read_text(encoding="utf-8")


def _held(spark: Any) -> set[int]:
    return set(spark._jsc.getPersistentRDDs())


@pytest.mark.timeout(300)  # May be the first to wait for the session.
@pytest.mark.parametrize("copies", [1, 2])
def test_nothing_stays_of_an_export(spark: SparkSession, tmp_path: Path, copies: int) -> None:
    """After the release of an export neither its tables nor its identities remain."""
    before = _held(spark)
    write_export(tmp_path, history_rows(_STORY) * copies, ExportFormat.JSONL)
    silver = open_exports(spark, [str(tmp_path)])
    scope = Scope(start_us=0, end_us=60_000_000)
    for name in ("s08", "s18"):
        assert result(ALL[name], silver, scope).collect()
    assert _held(spark) - before

    silver.release()

    assert _held(spark) - before == set()
