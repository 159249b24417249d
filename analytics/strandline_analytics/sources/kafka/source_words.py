"""What an export of Kafka's history says of where it came from, as a sentence for the pages that are made of it.

Invariant: every figure is one of the export's own `_source/kafka.json`; what cannot be read is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from strandline.export.layout import KAFKA_SOURCE
from strandline_analytics.sources.catalog import ExportedFile

# ---- levels
# Which sources of a Kafka cluster an export was made of: its metadata log, its brokers' logs, a Prometheus, a
# collector.
#
# A cluster may be in several exports that are read together; then it has the sources of all of them, but the brokers'
# logs only if no metadata log was imported without them: a figure must not be made of half of the time.


class Level(StrEnum):
    """A source, by its name in `KAFKA_SOURCE`."""

    METADATA_LOG = "metadata-log"
    BROKER_LOGS = "broker-logs"
    """The source of an export that has the metadata log as well."""
    PROMETHEUS = "prometheus"
    """Likewise."""
    COLLECTOR = "collector"


LOOKING = (Level.COLLECTOR, Level.PROMETHEUS)
"""The sources that look at a cluster again and again, the better one first: what they say is within bounds."""


Levels = Mapping[str, frozenset[Level]]
"""Levels by cluster; a cluster of our own is in none."""
Looking = Mapping[str, Mapping[Level, Mapping[str, Any]]]
"""What the export says of itself, by cluster and source."""


def sources(files: Sequence[ExportedFile]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What each export of a Kafka cluster says of itself, with the cluster's id."""
    folders = {(id(file.place), file.folder): file for file in files}
    for file in folders.values():
        wanted = f"{file.folder}{KAFKA_SOURCE}"
        if any(listed.path == wanted for listed in file.place.files(wanted.rpartition("/")[0])):
            yield file.cluster_id, _read(file.place.read(wanted))


def levels_of(files: Sequence[ExportedFile]) -> Levels:
    """The sources of each cluster among the files that is one of Kafka's.

    A cluster has the brokers' logs only if they were imported with each of its metadata logs.
    """
    found: dict[str, frozenset[Level]] = {}
    bare: set[str] = set()
    for cluster_id, source in sources(files):
        levels = levels_named(source)
        found[cluster_id] = found.get(cluster_id, frozenset()) | levels
        if Level.METADATA_LOG in levels and Level.BROKER_LOGS not in levels:
            bare.add(cluster_id)
    return {name: levels - {Level.BROKER_LOGS} if name in bare else levels for name, levels in found.items()}


def levels_named(source: Mapping[str, Any]) -> frozenset[Level]:
    """The sources that an export names, without those that this version does not know.

    Where none is known, the metadata log is assumed, which has the fewest figures.
    """
    named = source.get("levels")
    known = frozenset(map(Level, {*Level} & {*map(str, named if isinstance(named, list) else ())}))
    return known or frozenset({Level.METADATA_LOG})


def looking(files: Sequence[ExportedFile]) -> Looking:
    """What the sources that look at a cluster say of themselves; where there were several of a kind, one of them."""
    found: dict[str, dict[Level, Mapping[str, Any]]] = {}
    for cluster, source in sources(files):
        for level in LOOKING:
            if level in levels_named(source):
                found.setdefault(cluster, {})[level] = source
    return found


def _read(content: bytes) -> dict[str, Any]:
    try:
        source = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return source if isinstance(source, dict) else {}


def source_words(files: Sequence[ExportedFile]) -> tuple[str, ...]:
    """One sentence for each export of a Kafka cluster among the files."""
    return tuple("; ".join(_words(source)) for _, source in sources(files) if source)


def _words(said: Mapping[str, Any]) -> Iterator[str]:
    if Level.COLLECTOR in levels_named(said):
        yield (
            f"a collector that looked at the Kafka cluster {said.get('cluster_id')}, nodes "
            f"{_listed(said.get('nodes'))}, every {said.get('period_ms')} ms, {said.get('looks')} times"
        )
        # A collection on a controller has the log of its time too, which speaks for itself.
        beside = said.get(Level.METADATA_LOG)
        if isinstance(beside, dict):
            yield from _words(beside)
        return
    yield (
        f"metadata log of the Kafka cluster {said.get('cluster_id')}, offsets {said.get('first_offset')} to "
        f"{said.get('end_offset')}, from nodes {_listed(said.get('nodes'))}"
    )
    logs = said.get("logs")
    if isinstance(logs, dict) and logs:
        yield f"logs of nodes {_listed(logs)}"
        for node, log in logs.items():
            yield from _clock(node, log)
    scrapes = said.get("prometheus")
    if isinstance(scrapes, dict):
        yield f"a Prometheus that scraped nodes {_listed(scrapes.get('nodes'))} every {scrapes.get('period_ms')} ms"
    if versions := _listed(said.get("kafka_versions")):
        yield f"Kafka {versions}"
    if (level := said.get("metadata_version_level")) is not None:
        yield f"metadata.version level {level}"


def _clock(node: str, log: Any) -> Iterator[str]:
    spans = log.get("clock") if isinstance(log, dict) else None
    for span in spans if isinstance(spans, list) else ():
        if isinstance(span, dict) and isinstance(span.get("offset_ms"), list) and len(span["offset_ms"]) == 2:
            low, high = span["offset_ms"]
            yield f"clock of node {node} {low:+} to {high:+} ms"


def _listed(several: Any) -> str:
    return ", ".join(map(str, several)) if isinstance(several, list | dict) else ""
