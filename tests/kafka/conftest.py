"""Run A, the history of a real Kafka cluster, as directories of its nodes."""

from __future__ import annotations

import lzma
import shutil
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

if (_HERE := str(Path(__file__).parent)) not in sys.path:
    # Makes the builders of this folder importable for its tests.
    sys.path.append(_HERE)

RUN_A = Path(__file__).parent / "run_a"
SEGMENT = "00000000000000000000.log"
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"

MakeNode = Callable[[int], Path]
Unpack = Callable[[Path, int], Path]


@pytest.fixture(scope="session")
def run_a_log() -> bytes:
    """The bytes of the metadata log of run A."""
    return lzma.decompress((RUN_A / f"{SEGMENT}.xz").read_bytes())


@pytest.fixture(scope="session")
def unpack_node(run_a_log: bytes) -> Unpack:
    """Make the directory of one node of run A below another one: its log, its snapshot, and who it is."""

    def make(below: Path, node_id: int) -> Path:
        root = below / f"node{node_id}"
        folder = root / "__cluster_metadata-0"
        folder.mkdir(parents=True)
        (folder / SEGMENT).write_bytes(run_a_log)
        snapshot = RUN_A / f"{142 if node_id == 3 else 143:020}-0000000001.checkpoint"
        shutil.copy(snapshot, folder)
        (root / "meta.properties").write_text(f"#\nnode.id={node_id}\nversion=1\ncluster.id={CLUSTER}\n")
        return root

    return make


@pytest.fixture(scope="session")
def unpack_logs() -> Unpack:
    """Unpack the folder of logs of one node of run A, with its partitions' small files beside it."""

    def make(below: Path, node_id: int) -> Path:
        root = below / f"logs-of-{node_id}"
        with tarfile.open(RUN_A / "logs" / f"node{node_id}.tar.xz") as packed:
            packed.extractall(root, filter="data")
        return root / "logs"

    return make


@pytest.fixture
def run_a_node(tmp_path: Path, unpack_node: Unpack) -> MakeNode:
    """`unpack_node` below the test's own directory."""
    return lambda node_id: unpack_node(tmp_path, node_id)


@pytest.fixture
def run_a_logs(tmp_path: Path, unpack_logs: Unpack) -> MakeNode:
    """`unpack_logs` below the test's own directory."""
    return lambda node_id: unpack_logs(tmp_path, node_id)
