"""Which sources of a Kafka cluster an export was made of: its metadata log, a collector that looked at it, or both.

A cluster may be in several exports that are read together; then it has the sources of all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from strandline.export.layout import KAFKA_SOURCE
from strandline_analytics.sources.catalog import ExportedFile


class Level(StrEnum):
    """A source, by its name in `KAFKA_SOURCE`."""

    METADATA_LOG = "metadata-log"
    COLLECTOR = "collector"


Levels = Mapping[str, frozenset[Level]]
"""By cluster; a cluster of our own is in none."""


def sources(files: Sequence[ExportedFile]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each export of a Kafka cluster says of itself, with the cluster's id."""
    folders = {(id(file.place), file.folder): file for file in files}
    for file in folders.values():
        wanted = f"{file.folder}{KAFKA_SOURCE}"
        if any(listed.path == wanted for listed in file.place.files(wanted.rpartition("/")[0])):
            yield file.cluster_id, _read(file.place.read(wanted))


def levels_of(files: Sequence[ExportedFile]) -> Levels:
    """The sources of each cluster among the files that is one of Kafka's.

    A source that this version does not know adds nothing; where none is known, the metadata log is assumed, which has
    the fewest figures.
    """
    found: dict[str, frozenset[Level]] = {}
    for cluster_id, source in sources(files):
        named = source.get("levels")
        known = frozenset(map(Level, {*Level} & {*map(str, named if isinstance(named, list) else ())}))
        found[cluster_id] = found.get(cluster_id, frozenset()) | known
    return {cluster_id: levels or frozenset({Level.METADATA_LOG}) for cluster_id, levels in found.items()}


def collectors(files: Sequence[ExportedFile]) -> dict[str, dict[str, Any]]:
    """What the collector of each cluster says of itself; where there were several, one of them."""
    return {cluster: source for cluster, source in sources(files) if Level.COLLECTOR in source.get("levels", ())}


def _read(content: bytes) -> dict[str, Any]:
    try:
        source = json.loads(content)
    except ValueError:
        return {}
    return source if isinstance(source, dict) else {}
