"""The position of every row in its emitter's sequence, and the time of day by its emitter's clock.

Invariant: (node, incarnation, seq) identifies one row, and seq follows an emitter's own order. Rows are lost only after
they were numbered, so missing rows leave a hole.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from day.decisions import History
from day.looks import Columns
from day.nodes import Nodes
from day.shape import CONTROLLER, SECOND, Shape

STEP_BACK_US = 15_000
"""Node 0's clock steps back by so much at noon."""


def ahead(node: np.ndarray, at: np.ndarray, shape: Shape) -> np.ndarray:
    """The offset of a node's clock ahead of the controller's, us."""
    base = np.where(node == CONTROLLER, 0, (node * 7_919) % 20_001 - 10_000)
    return base - np.where((node == 0) & (at >= shape.end // 2), STEP_BACK_US, 0)


def number(tables: dict[str, Columns], nodes: Nodes, shape: Shape) -> None:
    """Add ``incarnation``, ``seq``, ``offset`` (from times of the day to times of day) to every table."""
    for columns in tables.values():
        columns["incarnation"] = np.ones(len(columns["t"]), np.int64)
        for node in range(shape.nodes):
            mine = columns["node_id"] == node
            births = np.array(nodes.births(node))
            columns["incarnation"][mine] = np.searchsorted(births, columns["t"][mine], side="right").clip(1)
        columns["offset"] = shape.start_us + ahead(columns["node_id"], columns["t"], shape)
    t, node_id, incarnation = (
        np.concatenate([columns[name] for columns in tables.values()]) for name in ("t", "node_id", "incarnation")
    )
    order = np.lexsort((t, incarnation, node_id))
    begins = (np.diff(node_id[order], prepend=-9) != 0) | (np.diff(incarnation[order], prepend=-9) != 0)
    place = np.arange(len(t))
    seqs = np.empty(len(t), np.int64)
    seqs[order] = place - np.maximum.accumulate(np.where(begins, place, 0)) + 1
    sizes = np.cumsum([len(columns["t"]) for columns in tables.values()])
    for columns, part in zip(tables.values(), np.split(seqs, sizes[:-1]), strict=True):
        columns["seq"] = part


def lose(
    rows: list[dict[str, Any]], tables: dict[str, Columns], history: History, shape: Shape, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """Which rows of each table survive: one decision in 500 is lost, and minutes of some partitions' samples."""
    reported = [row for row in history.rows if row["event_type"] == "ISR_CHANGE" and row["node_id"] == CONTROLLER]
    picked = rng.integers(0, len(reported), 1 + len(reported) // 500) if reported else []
    lost = {(reported[i]["p"], reported[i]["partition_epoch"]) for i in picked}
    kept = {kind: np.ones(len(columns["t"]), dtype=bool) for kind, columns in tables.items()}
    for index, row in enumerate(rows):
        if row["node_id"] == CONTROLLER and (row.get("p"), row.get("partition_epoch")) in lost:
            kept[""][index] = row["event_type"] not in ("ISR_CHANGE", "LEADER_CHANGE")
    for partition in rng.integers(0, shape.partitions, 1 + shape.partitions // 50).tolist():
        start = int(rng.integers(0, shape.end))
        for kind in set(tables) - {""}:
            columns = tables[kind]
            gone = (columns["p"] == partition) & (columns["t"] >= start) & (columns["t"] < start + 600 * SECOND)
            kept[kind] &= ~gone
    return kept
