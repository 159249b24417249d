"""Several statistics requested at once: in order, under the caller's job tag, from tables that are made once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from strandline_analytics.scope import Scope
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import Statistic
from strandline_analytics.stats.together import AT_ONCE, together

_ASKED = [(ALL[name], Scope(start_us=0, end_us=60_000_000)) for name in ("s16", "s08", "s10", "s15", "s13", "s14")]
_NAMES = [statistic.id for statistic, _ in _ASKED]


@pytest.fixture(autouse=True)
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


def test_queries_bear_the_tags_of_whoever_asks(spark: SparkSession, tables: Silver) -> None:
    """A job tag that was set before is on the queries of every thread."""
    context = spark.sparkContext
    context.addJobTag("a-job")
    try:
        found = list(together(tables, _ASKED, lambda *_: "a-job" in context.getJobTags()))
    finally:
        context.removeJobTag("a-job")

    assert found == [True] * len(_ASKED)


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
