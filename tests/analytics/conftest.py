"""One Spark session for all tests of the analytics, and hand-written histories as their input."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from generated_histories import GENERATED, generated, rows_of
from pyspark.sql import Row, SparkSession
from typer.testing import CliRunner, Result
from worked_histories import HISTORIES, history_rows

from strandline.cli.app import app
from strandline.export.schema import COLUMNS, spark_ddl
from strandline_analytics.scope import Grouping, Scope
from strandline_analytics.session import SMALL, open_session
from strandline_analytics.silver.events import check_stories, distinct_events
from strandline_analytics.silver.tables import Silver
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """An embedded session: two threads, no page, UTC."""
    session = open_session("strandline-tests", master="local[2]")
    for name, value in SMALL.items():
        session.conf.set(name, value)
    yield session
    session.stop()


def silver_of(spark: SparkSession, rows: list[dict[str, Any]]) -> Silver:
    """Silver tables of rows that set some of the columns."""
    frame = spark.createDataFrame([_full(row) for row in rows], spark_ddl()).cache()
    events, beside = distinct_events(frame)
    events = events.cache()
    check_stories(events)
    return Silver(events, frame, beside=beside)


class Answers:
    """Statistics of many histories in one data set, distinguished by their cluster id; each is computed once."""

    def __init__(self, tables: Silver) -> None:
        self.tables = tables
        self.clusters: set[str] = set()
        self._known: dict[tuple[str, Scope], dict[str, list[Row]]] = {}

    def rows(
        self, stat: str, cluster: str, *, start_ms: int = 0, end_ms: int = 60_000, step_ms: int | None = None,
        grouping: Grouping = Grouping.PARTITION,
    ) -> list[Row]:  # fmt: skip
        """The rows of one history, over [start_ms, end_ms), ordered by their keys."""
        step_us = step_ms and step_ms * 1000
        scope = Scope(start_us=start_ms * 1000, end_us=end_ms * 1000, step_us=step_us, grouping=grouping)
        if (stat, scope) not in self._known:
            found = defaultdict(list)
            order = [*scope.columns, *(value.name for value in ALL[stat].extra)]
            for row in result(ALL[stat], self.tables, scope).collect():
                found[row.cluster_id].append(row)
            for rows in found.values():
                rows.sort(key=lambda row: [(row[name] is not None, row[name]) for name in order if name in row])
            self._known[stat, scope] = found
            self.clusters.update(found)
        return self._known[stat, scope][cluster]

    def row(self, stat: str, cluster: str, **scope: Any) -> Row:
        """The only row of one history."""
        (row,) = self.rows(stat, cluster, **scope)
        return row


@pytest.fixture
def analytics(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs `strandline analytics ...` in this process, in the session that all tests share."""
    monkeypatch.setattr("strandline_analytics.session.open_session", lambda *_, **__: spark)
    monkeypatch.setattr(spark, "stop", lambda: None)

    def run(*words: object) -> Result:
        return CliRunner().invoke(app, ["analytics", *map(str, words)])

    return run


@pytest.fixture(scope="session")
def histories(spark: SparkSession) -> Answers:
    """The statistics of all worked histories; the cluster id of each is the name of its file."""
    return Answers(silver_of(spark, [row for name, rows in _worked() for row in _of_cluster(name, rows)]))


@pytest.fixture(scope="session")
def histories_with_variants(spark: SparkSession) -> Answers:
    """`histories`, with the variants of each and with generated ones: minutes, so only for tests that need these."""
    from variants import VARIANTS, with_a_copy

    rows = [row for number, story in enumerate(generated(GENERATED)) for row in rows_of(story, f"generated:{number}")]
    for name, reported in _worked():
        rows += _of_cluster(name, reported)
        for variant, change in VARIANTS.items():
            rows += _of_cluster(f"{variant}:{name}", change(reported))
        if name == "unclean":
            rows += _of_cluster("measured twice:unclean", with_a_copy(reported))
    return Answers(silver_of(spark, rows))


def _worked() -> list[tuple[str, list[dict[str, Any]]]]:
    """The worked histories: name and rows."""
    return [(path.stem, history_rows(path.read_text(encoding="utf-8"))) for path in sorted(HISTORIES.glob("*.jsonl"))]


def _of_cluster(cluster_id: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row | {"cluster_id": cluster_id} for row in rows]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test waits for the session, the tables of all histories and a statistic of all of them: a minute, and
    more where others compute as well."""
    for item in items:
        if {"histories", "histories_with_variants"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture
def silver(spark: SparkSession) -> Iterator[Callable[[str], Silver]]:
    """Makes silver tables from the text of a history, or from the file of that name in `histories`."""
    with ExitStack() as made:

        def make(history: str) -> Silver:
            text = (HISTORIES / history).read_text(encoding="utf-8") if history.endswith(".jsonl") else history
            tables = silver_of(spark, history_rows(text))
            assert tables.samples is not None
            made.callback(tables.samples.unpersist)
            made.callback(tables.release)
            return tables

        yield make


def _full(row: dict[str, Any]) -> dict[str, Any]:
    return {column.name: row.get(column.name) for column in COLUMNS}
