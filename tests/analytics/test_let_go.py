"""Released tables take no memory: a server, or a run over many hours, opens thousands of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from worked_histories import HISTORIES, history_rows
from written_export import write_export

from strandline.export.encoding import ExportFormat
from strandline_analytics.scope import Scope
from strandline_analytics.sources.exports import open_exports
from strandline_analytics.stats import ALL
from strandline_analytics.stats.definition import result

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
