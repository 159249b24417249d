"""Run A as directories of its nodes, for tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import run_a_files

MakeNode = Callable[[int], Path]
Unpack = Callable[[Path, int], Path]


@pytest.fixture(scope="session")
def run_a_log() -> bytes:
    return run_a_files.metadata_log()


@pytest.fixture(scope="session")
def unpack_node(run_a_log: bytes) -> Unpack:
    """`run_a_files.unpack_node` with the log that was read once."""
    return partial(run_a_files.unpack_node, log=run_a_log)


@pytest.fixture(scope="session")
def unpack_logs() -> Unpack:
    return run_a_files.unpack_logs


@pytest.fixture
def run_a_node(tmp_path: Path, unpack_node: Unpack) -> MakeNode:
    """`unpack_node` below the test's own directory."""
    return lambda node_id: unpack_node(tmp_path, node_id)


@pytest.fixture
def run_a_logs(tmp_path: Path, unpack_logs: Unpack) -> MakeNode:
    """`unpack_logs` below the test's own directory."""
    return lambda node_id: unpack_logs(tmp_path, node_id)
