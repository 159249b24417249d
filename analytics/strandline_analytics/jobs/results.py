"""What a run asks of the place that its rows go to, whatever the format: files in folders, or tables.

Invariant: an hour of a statistic is replaced as a whole, and nothing is reported as known that is not there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from pyspark.sql import DataFrame, SparkSession

from strandline import __version__
from strandline.export.layout import hour_folder
from strandline_analytics.jobs.coverage import HourCoverage
from strandline_analytics.sources.places import read_text, write_text
from strandline_analytics.stats.definition import Statistic

PLACE = "place"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultEntry:
    """Of one statistic: the files that its rows follow from, and how many rows there are."""

    input_manifest_hash: str
    rows: int
    code_version: str = __version__


class Results(Protocol):
    """Where the rows of closed hours are written."""

    @property
    def shown(self) -> str:
        """What people are shown as the place."""
        ...

    def place(self, statistic: Statistic) -> str:
        """Where the rows of one statistic are: a folder, or a table."""
        ...

    def begin(self, statistics: Sequence[Statistic], hours: Sequence[HourCoverage]) -> None:
        """Make ready for rows of these statistics and hours, and for `known`. Hours may be none.

        Raises:
            InputTrouble: what is there cannot take the rows.
        """
        ...

    def known(self, hour: HourCoverage) -> Mapping[str, ResultEntry]:
        """What earlier runs wrote of an hour, as far as it is there, by statistic."""
        ...

    def write(self, statistic: Statistic, rows: DataFrame, hour: int, hashes: Mapping[str, str]) -> None:
        """Replace an hour of a statistic; called for several statistics at a time.

        Args:
            rows: in their order, with ``place``, the number of their cluster in ``hashes``, beside what is written.
            hour: since 1970.
            hashes: of the input, by cluster; the rows of a cluster that has none now are removed.
        """
        ...

    def finish(self, hour: HourCoverage) -> None:
        """Called when every statistic of an hour is written."""
        ...

    def end(self) -> None:
        """Called after the last hour."""
        ...

    def count(self, statistics: Collection[Statistic], hours: Sequence[HourCoverage]) -> dict[str, int]:
        """How many rows of these hours there are now, by statistic."""
        ...


# ---- ledger
# How it is known what was written of an hour, and from which files: one small JSON file for hour and cluster.
#
# It lies beside the results, in ``_written/dt=.../hr=.../cluster=ID.json``, and is written after them: an hour whose
# statistics all stand in it with one version of the code is whole. An hour is computed again when its files, or the
# code, are others than those of its ledger.
#
# Invariant: a ledger never says more than lies in the results; without a ledger nothing is believed.

FOLDER = "_written"


def read_ledger(spark: SparkSession, root: str, hour: HourCoverage) -> dict[str, ResultEntry]:
    """What was written of an hour, by statistic; nothing where no ledger can be read."""
    text = read_text(spark, _name(root, hour))
    if text is None:
        return {}
    try:
        reported: dict[str, Any] = json.loads(text)
        return {stat: ResultEntry(**entry) for stat, entry in reported["statistics"].items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def write_ledger(spark: SparkSession, root: str, hour: HourCoverage, entries: dict[str, ResultEntry]) -> None:
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
