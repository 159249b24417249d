"""What a step costs the event loop in syncs, however many partitions it changes (ADR 19)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from many_partitions import ME, OTHER, Node, Syncs

from strandline.core.control.state import ControllerTimings
from strandline.storage.directory import DataDirectory
from strandline.storage.journal import JOURNAL_NAMES

PARTITIONS = 1_000
FRAME = [JOURNAL_NAMES[0]]
"""One sync, of the journal."""


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Syncs:
    """Counts the syncs of the process instead of doing them."""
    counted = Syncs()
    monkeypatch.setattr(os, "fsync", counted)
    monkeypatch.setattr(os, "fdatasync", counted)
    return counted


@pytest.fixture
def node(tmp_path: Path, syncs: Syncs) -> Iterator[Node]:
    """A node that follows in every partition since epoch 1."""
    node = Node(tmp_path, PARTITIONS, syncs)
    node.lead(OTHER, 1)
    yield node
    node.close()


def test_a_change_of_leader_costs_one_sync(node: Node, syncs: Syncs) -> None:
    """Epochs, HWs, reconciled epochs and metadata of 1,000 partitions are one frame, for every new leader."""
    syncs.taken()
    node.lead(ME, 2)
    to_lead = syncs.taken()
    node.lead(OTHER, 3)

    assert len(node.core.state.followers) == PARTITIONS
    assert (to_lead, syncs.taken()) == (FRAME, FRAME)


def test_the_first_records_of_an_epoch_cost_one_sync(node: Node, syncs: Syncs) -> None:
    """A follower saves the new epoch of every partition before it appends to any."""
    syncs.taken()
    answered = node.answer_fetches(1)

    assert answered == PARTITIONS
    assert syncs.taken() == FRAME


def test_new_and_deleted_logs_cost_one_sync_of_the_directory_more(tmp_path: Path, syncs: Syncs) -> None:
    """The folders of all logs that a step makes or removes are entries of one directory."""
    node = Node(tmp_path, PARTITIONS, syncs)
    syncs.taken()
    node.lead(ME, 1)
    made = syncs.taken()
    node.delete_topic()
    deleted = syncs.taken()

    assert made == deleted == [*FRAME, tmp_path.name]
    assert not list(tmp_path.glob("t-*"))
    node.close()


def test_a_slow_disk_does_not_hold_the_loop_for_a_heartbeat(tmp_path: Path, syncs: Syncs) -> None:
    """With 15 ms per sync no step of a change of leader in 1,000 partitions lasts as long as a heartbeat interval.

    The journal is so short that the checkpoint files are rewritten meanwhile, in a thread.
    """
    node = Node(tmp_path, PARTITIONS, syncs, journal_bytes=100_000)
    node.lead(OTHER, 1)
    for epoch in range(2, 10):
        node.answer_fetches(epoch - 1)
        node.commit_all()
        node.lead((ME, OTHER)[epoch % 2], epoch)

    assert "leader-epoch-checkpoint.completing.tmp" in syncs.elsewhere
    assert node.longest_hold_ms < ControllerTimings().heartbeat_interval_ms
    node.close()


def test_a_replayed_change_of_leader_is_whole(tmp_path: Path, syncs: Syncs) -> None:
    """What one frame saved of 1,000 partitions is read again after a crash."""
    node = Node(tmp_path, PARTITIONS, syncs)
    node.lead(OTHER, 1)
    node.lead(ME, 2)
    node.close()
    again = DataDirectory.open(tmp_path, node_id=ME, cluster_id="c")
    checkpoints = again.checkpoints

    assert [checkpoints.epochs_of(("t", at))[-1].epoch for at in range(PARTITIONS)] == [2] * PARTITIONS
    assert set(checkpoints.reconciled_epochs.offsets.values()) == {2}
    assert again.checkpoints.fault is None
    again.close(clean=False)
