"""What the commits of a table say of the hours that were written: the hash of the input of each, by cluster.

Rows name their input themselves. Only an hour without any row is known by the commit that wrote it, and only as long as
nobody else has changed rows since.

Each commit of a run has one word, JSON: in Iceberg the property `strandline.hour` of the snapshot's summary, in Delta
the user's metadata of the commit.

Invariant: a word that cannot be read, or that was followed by a change of rows that is not ours, says nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from strandline import __version__
from strandline_analytics.jobs.results import Entry
from strandline_analytics.tables.formats import ResultFormat

_PROPERTY = "strandline.hour"
_WRITER = "strandline"
_WITHOUT_ROWS = frozenset(
    {
        "replace",
        "ADD COLUMNS",
        "CLUSTER BY",
        "CREATE TABLE",
        "OPTIMIZE",
        "SET TBLPROPERTIES",
        "UNSET TBLPROPERTIES",
        "UPGRADE PROTOCOL",
        "VACUUM END",
        "VACUUM START",
    }
)
"""Operations of Iceberg and Delta after which a table has the rows that it had before."""


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a table: what it did, as the format names it, and the word it has."""

    operation: str
    word: str | None


def options_of(kind: ResultFormat, word: str, *, version: int) -> dict[str, str]:
    """The options of a write that give its commit a word.

    Delta leaves out a commit that neither adds nor removes a file, unless it carries a writer's transaction. Of two
    writers at a time, one fails by it.

    Args:
        kind: a format of tables.
        word: of `word_of`.
        version: of the table before the write; that of a writer's transaction must rise, and a table's version does.
    """
    if kind is ResultFormat.DELTA:
        return {"userMetadata": word, "txnAppId": _WRITER, "txnVersion": str(version + 1)}
    return {f"snapshot-property.{_PROPERTY}": word}


def word_of(hour: int, hashes: Mapping[str, str]) -> str:
    """The word of a commit that replaces an hour.

    Args:
        hour: since 1970.
        hashes: of the input, by cluster.
    """
    return json.dumps({"hour": hour, "hashes": dict(sorted(hashes.items())), "code_version": __version__})


def hours_said(commits: Iterable[Commit]) -> dict[tuple[str, int], Entry]:
    """What commits say of hours without rows, by cluster and hour.

    Args:
        commits: those that led to the table as it is, the oldest first.
    """
    said: dict[tuple[str, int], Entry] = {}
    for commit in commits:
        own = _read(commit.word)
        if own is not None:
            said |= own
        elif commit.operation not in _WITHOUT_ROWS:
            said.clear()
    return said


def _read(word: str | None) -> dict[tuple[str, int], Entry] | None:
    try:
        read: dict[str, Any] = json.loads(word or "")
        hour, version = int(read["hour"]), str(read["code_version"])
        return {
            (str(cluster), hour): Entry(input_manifest_hash=str(own), rows=0, code_version=version)
            for cluster, own in read["hashes"].items()
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def version_of(spark: SparkSession, table: str, kind: ResultFormat) -> int:
    """The version of a table of Delta; 0 of others, which have none.

    Args:
        spark: any session that has the table.
        table: quoted.
        kind: its format.
    """
    if kind is not ResultFormat.DELTA:
        return 0
    (row,) = spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").select("version").collect()
    return int(row["version"])


def commits_of(spark: SparkSession, table: str, kind: ResultFormat) -> list[Commit]:
    """The commits that led to a table as it is and that its format still knows, the oldest first.

    Args:
        spark: any session that has the table.
        table: quoted.
        kind: its format.
    """
    if kind is ResultFormat.DELTA:
        history = spark.sql(f"DESCRIBE HISTORY {table}").orderBy("version").select("operation", "userMetadata")
        return [Commit(operation, word) for operation, word in history.collect()]
    snapshots = spark.sql(
        f"SELECT operation, summary['{_PROPERTY}'] FROM {table}.snapshots LEFT SEMI JOIN "
        f"(SELECT snapshot_id FROM {table}.history WHERE is_current_ancestor) USING (snapshot_id) ORDER BY committed_at"
    )
    return [Commit(operation, word) for operation, word in snapshots.collect()]
