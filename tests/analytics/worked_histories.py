"""Hand-written histories, as JSON lines in `histories` or in a test: the event rows they expand to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from strandline.export.schema import COLUMNS

HISTORIES = Path(__file__).parent / "histories"
_DEFAULTS = {"schema_version": 1, "cluster_id": "c", "topic": "t", "topic_id": "T", "partition": 0, "node_id": -1,
             "incarnation": 1, "leader_epoch": 0, "controller_epoch": 1}  # fmt: skip


def history_rows(text: str) -> list[dict[str, Any]]:
    """The events of a history: JSON lines; blank lines and lines that begin with # are comments.

    Fields that a line leaves out are filled in: one cluster, one topic, one partition, the controller as emitter, seq
    and meta_offset counted. ``t`` is the time in milliseconds. ``look`` expands to a REPLICA_SAMPLE of each replica.
    """
    rows: list[dict[str, Any]] = []
    names = {column.name for column in COLUMNS}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        for said in _said(json.loads(line)):
            number = len(rows) + 1
            row = _DEFAULTS | {"seq": number, "ts_wall_us": round(said.pop("t") * 1000)} | said
            row.setdefault("ts_mono_us", row["ts_wall_us"])
            if row["node_id"] == -1:
                row.setdefault("meta_offset", number)
            assert set(row) <= names, f"no such column: {set(row) - names}"
            rows.append(row)
    return rows


def _said(line: dict[str, Any]) -> Iterator[dict[str, Any]]:
    look = line.pop("look", None)
    if look is None:
        yield line
        return
    leo = {int(node): offset for node, offset in look["leo"].items()}
    durable = leo | {int(node): offset for node, offset in look.get("durable", {}).items()}
    leader, isr, down = look["leader"], look["isr"], look.get("down", [])
    for node in leo:
        state = "down" if node in down else "member" if node in isr else "catching_up"
        yield line | {
            "event_type": "REPLICA_SAMPLE", "node_id": leader, "sample_id": round(line["t"] * 1000), "hw": look["hw"],
            "replica_id": node, "leo": leo[node], "durable_leo": durable[node], "leader_leo": leo[leader],
            "in_isr": node in isr, "in_maximal_isr": node in look.get("maximal", isr), "expected_state": state,
        }  # fmt: skip
