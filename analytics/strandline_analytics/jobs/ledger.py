"""How it is known what was written of an hour, and from which files: one small JSON file for hour and cluster.

It lies beside the results, in ``_written/dt=.../hr=.../cluster=ID.json``, and is written after them: an hour whose
statistics all stand in it with one version of the code is whole. An hour is computed again when its files, or the code,
are others than those of its ledger.

Invariant: a ledger never says more than lies in the results; without a ledger nothing is believed.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from pyspark.sql import SparkSession

from strandline.export.layout import hour_folder
from strandline_analytics.jobs.coverage import HourCoverage
from strandline_analytics.jobs.results import Entry
from strandline_analytics.sources.places import read_text, write_text

FOLDER = "_written"


def read_ledger(spark: SparkSession, root: str, hour: HourCoverage) -> dict[str, Entry]:
    """What was written of an hour, by statistic; nothing where no ledger can be read."""
    text = read_text(spark, _name(root, hour))
    if text is None:
        return {}
    try:
        reported: dict[str, Any] = json.loads(text)
        return {stat: Entry(**entry) for stat, entry in reported["statistics"].items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def write_ledger(spark: SparkSession, root: str, hour: HourCoverage, entries: dict[str, Entry]) -> None:
    """Say what is written of an hour."""
    reported = {
        "cluster_id": hour.cluster_id,
        "state": hour.state.value,
        "coverage": hour.coverage,
        "statistics": {stat: asdict(entry) for stat, entry in sorted(entries.items())},
    }
    write_text(spark, _name(root, hour), json.dumps(reported, indent=1) + "\n")


def _name(root: str, hour: HourCoverage) -> str:
    return f"{root}/{FOLDER}/{hour_folder(hour.hour)}/cluster={hour.cluster_id}.json"
