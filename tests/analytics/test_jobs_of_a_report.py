"""How much Spark is asked to do for a report over little input: a count, which no busy machine changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame
from worked_histories import HISTORIES, history_rows
from written_export import write_export

from strandline.export.encoding import ExportFormat
from strandline_analytics.report.gather import gather
from strandline_analytics.sources.exports import open_exports
from strandline_analytics.stats import ALL

MOST_JOBS = 45
"""One for each question and each table that several read; a broadcast or a shuffle's own job would be more."""
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
    initialised = DataFrame.__init__

    def counted(frame: DataFrame, *arguments: Any) -> None:
        # PySpark 4.1 initialises each frame twice.
        if not vars(frame):
            made.append(id(frame))
        initialised(frame, *arguments)

    monkeypatch.setattr(DataFrame, "__init__", counted)
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
