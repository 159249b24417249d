"""Run A as directories of its nodes, for tests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import run_a_files

MakeNode = Callable[[int], Path]


@pytest.fixture
def run_a_node(tmp_path: Path) -> MakeNode:
    """`unpack_node` below the test's own directory."""
    return partial(run_a_files.unpack_node, tmp_path)


@pytest.fixture
def run_a_logs(tmp_path: Path) -> MakeNode:
    """`unpack_logs` below the test's own directory."""
    return partial(run_a_files.unpack_logs, tmp_path)
