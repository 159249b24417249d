"""A program of a user of Spark Connect: `connect_client.py EXPORT OUT STAT...`, with the server in ``SPARK_REMOTE``.

Prints the rows of the statistics as JSON, and writes their tables.
"""

from __future__ import annotations

import json
import sys

from strandline_analytics.frames import statistics
from strandline_analytics.jobs import run as job
from strandline_analytics.jobs.ask import Question, chosen
from strandline_analytics.jobs.parquet_results import ParquetResults
from strandline_analytics.session import open_session

LATER_US = 10**15


def main(export: str, out: str, *names: str) -> None:
    """Ask in a session that the variable names, and that has what a user of little input would set."""
    spark = open_session()
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    frames = statistics(spark, [export], names)
    rows = {name: [row.asDict(recursive=True) for row in frame.collect()] for name, frame in frames.items()}
    question = job.whole_hours(Question(inputs=(export,), statistics=chosen(names)))
    results = ParquetResults(spark, out, question.grouping)
    written = job.run(spark, question, job.hours_for(spark, question, now_us=LATER_US), results)
    print(json.dumps({"kind": type(spark).__module__, "rows": rows, "written": written.rows}, default=str))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
