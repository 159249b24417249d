"""The same events in other files: the figures do not depend on the division."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from worked_histories import HISTORIES, history_rows
from written_export import write_export

from strandline.export.encoding import ExportFormat
from strandline_analytics.scope import Grouping, Scope
from strandline_analytics.sources.exports import open_exports
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result

STORIES = ("slow_disk", "failover")
AT_A_TIME = 3
ABOUT_FILES = ("cluster_id", "input_manifest_hash")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each history twice: in as few files as possible, and in small ones, half of them Parquet and half JSON lines."""
    root = tmp_path_factory.mktemp("split")
    for story in STORIES:
        rows = history_rows((HISTORIES / f"{story}.jsonl").read_text(encoding="utf-8"))
        whole = write_export(root, [row | {"cluster_id": f"whole-{story}"} for row in rows])
        small = []
        for number, part in enumerate(rows[i : i + AT_A_TIME] for i in range(0, len(rows), AT_A_TIME)):
            kind = list(ExportFormat)[number % 2]
            small += write_export(root, [row | {"cluster_id": f"small-{story}"} for row in part], kind)
        assert len(small) > len(whole)
    return root


# Two queries, each planned from scratch; the first waits for the session.
@pytest.mark.timeout(300)
def test_splitting_files_changes_no_figure(spark: SparkSession, root: Path) -> None:
    """Split files change no value of a statistic of samples or of transitions, coverage and flaws included."""
    silver = open_exports(spark, [str(root)])
    scope = Scope(start_us=0, end_us=60_000_000, grouping=Grouping.PARTITION)
    for stat in ("s18", "s19"):
        reported: dict[str, dict[str, list[dict[str, Any]]]] = {"whole": {}, "small": {}}
        for row in result(ALL[stat], silver, scope).collect():
            how, _, story = row.cluster_id.partition("-")
            values = {name: value for name, value in row.asDict(recursive=True).items() if name not in ABOUT_FILES}
            reported[how].setdefault(story, []).append(values)
        ordered = {how: {s: sorted(rows, key=str) for s, rows in by.items()} for how, by in reported.items()}
        assert ordered["whole"]
        assert ordered["small"] == ordered["whole"]
