"""What an export of Kafka's history says of where it came from, as a sentence for the pages that are made of it.

Invariant: every figure is one of the export's own `_source/kafka.json`; what cannot be read is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strandline_analytics.sources.catalog import ExportedFile
from strandline_analytics.sources.kafka.levels import Level, levels_named, sources


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
