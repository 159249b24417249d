"""`python -m strandline_analytics.report`: makes just the page, for spark-submit and for programs that show progress.

Invariant: files appear whole or not at all; progress goes to stderr as one line of JSON for each part, and stdout has
the verdict alone.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from strandline_analytics.report.gather import STEPS, TooMuch, gather
from strandline_analytics.report.page import report_of
from strandline_analytics.session import SMALL, is_little, open_session
from strandline_analytics.sources.exports import open_exports


def main() -> int:
    """Write the page of a report; the exit code is 0 on success."""
    if not __debug__:
        remedy = "start it without -O and with PYTHONOPTIMIZE unset"
        sys.stderr.write(f"strandline: this Python removes assertions; {remedy}\n")
        return 2
    asked = _arguments()
    master = None if "PYSPARK_GATEWAY_PORT" in os.environ else "local[*]"
    spark = open_session("strandline-report", master=master, memory=asked.memory, little=is_little(asked.input))
    try:
        for name, value in (SMALL if asked.small else {}).items():
            spark.conf.set(name, value)
        silver = open_exports(spark, asked.input, start_us=asked.from_us, end_us=asked.to_us)
        material = gather(
            silver, asked.input, start_us=asked.from_us, end_us=asked.to_us, steps=asked.steps, reported=_tell
        )
    except (TooMuch, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    finally:
        spark.stop()
    made = report_of(material)
    made.write(asked.out, asked.figures)
    sys.stdout.write(f"{made.verdict}\n")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m strandline_analytics.report", description=main.__doc__)
    parser.add_argument("--input", action="append", required=True, help="root of an export; repeatable")
    parser.add_argument("--out", type=Path, default=Path("strandline-report.html"), help="the HTML file")
    parser.add_argument("--figures", type=Path, help="the page's figures as JSON")
    parser.add_argument("--from-us", type=int, help="start of the window, us since 1970")
    parser.add_argument("--to-us", type=int, help="its end, not included")
    parser.add_argument("--steps", type=int, default=STEPS, help="bars of each small chart")
    parser.add_argument("--memory", default="2g", help="of an embedded Spark")
    parser.add_argument("--small", action="store_true", help="the export is one of minutes")
    return parser.parse_args()


def _tell(what: str, done: int, parts: int) -> None:
    sys.stderr.write(json.dumps({"what": what, "done": done, "parts": parts}) + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
