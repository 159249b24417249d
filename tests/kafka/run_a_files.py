"""Run A, the history of a real Kafka cluster of three nodes, as the files that its nodes left."""

from __future__ import annotations

import json
import lzma
import shutil
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

RUN_A = Path(__file__).parent / "run_a"
SEGMENT = "00000000000000000000.log"
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
NODES = (1, 2, 3)


@cache
def metadata_log() -> bytes:
    """The bytes of the metadata log, which all three nodes have."""
    return lzma.decompress((RUN_A / f"{SEGMENT}.xz").read_bytes())


def unpack_node(below: Path, node_id: int) -> Path:
    """Make the directory of one node below another one: the metadata log, its snapshot, and who it is."""
    root = below / f"node{node_id}"
    folder = root / "__cluster_metadata-0"
    folder.mkdir(parents=True)
    (folder / SEGMENT).write_bytes(metadata_log())
    snapshot = RUN_A / f"{142 if node_id == 3 else 143:020}-0000000001.checkpoint"
    shutil.copy(snapshot, folder)
    (root / "meta.properties").write_text(f"#\nnode.id={node_id}\nversion=1\ncluster.id={CLUSTER}\n")
    return root


def unpack_logs(below: Path, node_id: int) -> Path:
    """Unpack the folder of a node's logs, with its partitions' small files beside it."""
    root = below / f"logs-of-{node_id}"
    with tarfile.open(RUN_A / "logs" / f"node{node_id}.tar.xz") as packed:
        packed.extractall(root, filter="data")
    return root / "logs"


def import_words(below: Path) -> list[str]:
    """Unpack all files of all nodes; returns the words of `strandline analytics` that import them."""
    copies, logs = [], []
    for node_id in NODES:
        copies += ["--metadata-log", str(unpack_node(below, node_id))]
        logs += ["--logs", f"n{node_id}={unpack_logs(below, node_id)}"]
    return ["import", "kafka", *copies, *logs]


def deed(what: str, **rest: Any) -> dict[str, Any]:
    """What was done to the cluster, as it was written down then."""
    done = map(json.loads, (RUN_A / "truth.jsonl").read_text().splitlines())
    found: dict[str, Any] = next(one for one in done if one["what"] == what and rest.items() <= one.items())
    return found


def deed_ms(what: str, **rest: Any) -> int:
    return int(deed(what, **rest)["t_ms"])
