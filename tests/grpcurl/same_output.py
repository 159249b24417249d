"""Whether two outputs are the same: equal except for offsets, times, ids, epochs of nodes, and ports.

Invariant: the set of fields, every name, error and sentence must be equal; only values that differ from run to run are
replaced, each by a word for its kind.
"""

from __future__ import annotations

import json
import re
from typing import Any

_VOLATILE = (
    "port|base_offset|node_epoch|epoch_start_offset|log_size_bytes|current_metadata_offset|metadata_offset|producer_id"
    r"|\w+_offset|\w+_age_ms|timestamp_ms|controller_wall_us|high_watermark|records|events|run_id|topic_id|cluster_id"
    r"|commit_timestamp_ms|transaction_start_time_ms|directory_id|input_manifest_hash|start|end|hour|time|submitted|started|ended|state|as_of"
    r"|clock_err_us|\w+_us"
    "|ingest_seq|incarnation_id|int64_value|double_value|coverage|emitters|ordinal|total_rows|sentence|event_seq"
    "|emitter_seq|seq|hw|leo|meta_offset|next_page_token|incarnation|reign_id|mac"
)
_FIELD = re.compile(rf'("(?:{_VOLATILE})": )(?:"[^"]*"|-?[\d.e+]+)')
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
_DEADLINE = re.compile(r"(Message: )(?:context deadline exceeded|Deadline Exceeded)")
_NODE_EPOCH = re.compile(r"(node_epoch|current) \d+")

_BLANKS = (
    (_UUID, "<id>"),
    (_ADDRESS, "<address>"),
    (_NODE_EPOCH, r"\1 <epoch>"),
    (_DEADLINE, r"\1<deadline>"),
)


def normal(output: str) -> list[str]:
    """The lines of an output with all volatile values replaced."""
    text = _FIELD.sub(r"\1<varies>", _in_order(output))
    for pattern, word in (
        (_UUID, "<id>"),
        (_ADDRESS, "<address>"),
        (_NODE_EPOCH, r"\1 <epoch>"),
        (_DEADLINE, r"\1<deadline>"),
    ):
        text = pattern.sub(word, text)
    return [line.rstrip() for line in text.splitlines()]


def _in_order(output: str) -> str:
    """JSON with its nodes in the order of their ids, instead of the order of registration; other text unchanged."""
    try:
        value = json.loads(output)
    except ValueError:
        return output
    _sort_nodes(value)
    return json.dumps(value, indent=2)


def _sort_nodes(value: Any) -> None:
    if isinstance(value, dict):
        if isinstance(value.get("nodes"), list):
            value["nodes"].sort(key=lambda node: node.get("node_id", 0))
        for below in value.values():
            _sort_nodes(below)
    elif isinstance(value, list):
        for below in value:
            _sort_nodes(below)
