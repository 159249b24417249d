"""What must hold within one process: every violation is found and named."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from strandline.core.messages import ProposedIsr
from strandline.core.types import LeaderEpoch, PartitionEpoch, TopicPartition
from strandline_sim.checks.checks import check_own
from strandline_sim.checks.committed import Broken

TP = TopicPartition("id", 0)


def _process(*, leads: int | None = None, proposed: int | None = None, saved: int = 0, leo: int = 5) -> Any:
    """A process that leads in one epoch, waits for a proposal of another, and has saved a high watermark."""
    leader = SimpleNamespace(image=SimpleNamespace(leader_epoch=LeaderEpoch(leads or 0)))
    state = SimpleNamespace(leaders={} if leads is None else {TP: leader}, logs={TP: SimpleNamespace(leo=leo)})
    proposal = ProposedIsr(TP, LeaderEpoch(proposed or 0), PartitionEpoch(1), ())
    core = SimpleNamespace(state=state, proposals={} if proposed is None else {TP: proposal})
    return SimpleNamespace(core=core, node_id=1, saved={TP: saved})


def test_what_is_right_is_not_complained_of() -> None:
    """A proposal of the epoch in which its node leads, and a saved high watermark at the log's end."""
    check_own(_process(leads=3, proposed=3, saved=5))
    check_own(_process(saved=5))


@pytest.mark.parametrize("leads", [None, 4], ids=["deposed", "leads again"])
def test_a_proposal_of_an_earlier_epoch_is_found(leads: int | None) -> None:
    """A proposal of an earlier epoch is found whether its node still leads or not."""
    with pytest.raises(Broken, match="I14: a proposal of epoch 3 waits for p0 on node 1"):
        check_own(_process(leads=leads, proposed=3))


def test_a_saved_high_watermark_above_the_log_is_found() -> None:
    """With both numbers; a log that is no longer open is not checked."""
    with pytest.raises(Broken, match="I0: node 1 saved HW 6, its log ends at 5"):
        check_own(_process(saved=6))
    process = _process(saved=6)
    process.core.state.logs.clear()
    check_own(process)
