"""PySpark 4.1 refuses streams; `make test-with WHAT=matrix` alone runs this file, as newer versions read them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline_analytics.pyspark_range import NeedsNewerSpark
from strandline_analytics.stream.job import StreamJob, start

# The first query of a session starts its JVM and its Python workers.
pytestmark = pytest.mark.timeout(300)

NEEDS = r"reading as a stream needs PySpark 4\.2 or newer, and this is 4\.1\.\d+; "


def test_a_topic_is_not_read_as_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """The query fails with the version that is needed and with what works; no cluster is asked."""
    source = spark.readStream.format("strandline").option("bootstrap", "127.0.0.1:1").option("topic", "orders")
    query = source.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c")).start()
    with pytest.raises(Exception, match=NEEDS + "spark.read reads the topic as a batch, and writeStream writes it"):
        query.awaitTermination(60)


def test_live_statistics_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Before anything is written, with the command that computes the same."""
    out = tmp_path / "out"
    job = StreamJob(inputs=(str(tmp_path),), out=str(out), checkpoint=str(tmp_path / "c"))
    with pytest.raises(NeedsNewerSpark, match=NEEDS + "`strandline analytics run` computes the same from closed hours"):
        start(spark, job)
    assert not out.exists()
