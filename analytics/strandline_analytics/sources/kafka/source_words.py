"""What an export of Kafka's history says of where it came from, as a sentence for the pages that are made of it.

Invariant: every figure is one of the export's own `_source/kafka.json`; what cannot be read is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strandline.export.layout import KAFKA_SOURCE
from strandline_analytics.sources.catalog import ExportedFile


def source_words(files: Sequence[ExportedFile]) -> tuple[str, ...]:
    """One sentence for each export of Kafka's history among the files."""
    folders = {(id(file.place), file.folder): file for file in files}
    found = (_said(file) for file in folders.values())
    return tuple("; ".join(_words(said)) for said in found if said is not None)


def _said(file: ExportedFile) -> Mapping[str, Any] | None:
    wanted = f"{file.folder}{KAFKA_SOURCE}"
    if not any(listed.path == wanted for listed in file.place.files(wanted.rpartition("/")[0])):
        return None
    try:
        said = json.loads(file.place.read(wanted))
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _words(said: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"metadata log of the Kafka cluster {said.get('cluster_id')}, offsets {said.get('first_offset')} to "
        f"{said.get('end_offset')}, from nodes {_listed(said.get('nodes'))}"
    )
    logs = said.get("logs")
    if isinstance(logs, dict) and logs:
        yield f"logs of nodes {_listed(logs)}"
        for node, log in logs.items():
            yield from _clock(node, log)
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
