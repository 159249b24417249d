"""Describes the origin of an export of Kafka's history, in a sentence for the pages that are made of it.

Invariant: every figure is from the export's own `_source/kafka.json`; unreadable values are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from strandline.export.layout import KAFKA_SOURCE
from strandline_analytics.sources.catalog import ExportedFile

# ---- levels
# Determines the sources of an export of a Kafka cluster: its metadata log, its brokers' logs, a Prometheus, a
# collector.
#
# A cluster may be in several exports that are read together; then it has the sources of all of them, but the brokers'
# logs only if no metadata log was imported without them: a figure must not cover only half of the time.


class Level(StrEnum):
    """A source, by its name in `KAFKA_SOURCE`."""

    METADATA_LOG = "metadata-log"
    BROKER_LOGS = "broker-logs"
    """The brokers' logs; such an export has the metadata log as well."""
    PROMETHEUS = "prometheus"
    """A Prometheus; such an export has the metadata log as well."""
    COLLECTOR = "collector"


LOOKING = (Level.COLLECTOR, Level.PROMETHEUS)
"""The sources that observe a cluster at intervals, the better one first; their figures are within bounds."""


Levels = Mapping[str, frozenset[Level]]
"""Levels by cluster; a cluster of our own has none."""
Looking = Mapping[str, Mapping[Level, Mapping[str, Any]]]
"""The export's report on itself, by cluster and source."""


def sources(files: Sequence[ExportedFile]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The report of each export of a Kafka cluster on itself, with the cluster's id."""
    folders = {(id(file.place), file.folder): file for file in files}
    for file in folders.values():
        wanted = f"{file.folder}{KAFKA_SOURCE}"
        if any(listed.path == wanted for listed in file.place.files(wanted.rpartition("/")[0])):
            yield file.cluster_id, _read(file.place.read(wanted))


def levels_of(files: Sequence[ExportedFile]) -> Levels:
    """The sources of each Kafka cluster among the files.

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

    If none is known, the metadata log is assumed, which has the fewest figures.
    """
    named = source.get("levels")
    known = frozenset(map(Level, {*Level} & {*map(str, named if isinstance(named, list) else ())}))
    return known or frozenset({Level.METADATA_LOG})


def looking(files: Sequence[ExportedFile]) -> Looking:
    """The reports of observing sources on themselves; if there were several of a kind, one of them."""
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
        # A collection on a controller also has the log of its time, which has a sentence of its own.
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
