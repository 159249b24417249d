"""Which replication factor of internal topics `strandline up` gives its controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.cli.local.local_cluster import LocalCluster, Plan


@pytest.mark.parametrize(("nodes", "given"), [(1, "1"), (2, "2"), (3, None), (5, None)])
def test_a_small_cluster_says_how_many_replicas_the_topic_of_groups_has(
    tmp_path: Path, nodes: int, given: str | None
) -> None:
    """Otherwise no group could be coordinated there; from three nodes on the controller's default holds."""
    words = LocalCluster(Plan(directory=tmp_path, nodes=nodes))._controller_command(1)
    found = [words[index + 1] for index, word in enumerate(words) if word == "--internal-replication-factor"]

    assert found == ([given] if given else [])
