"""What must hold of one process by itself at the end of every step: its proposals and what it has saved.

Invariants: a proposal that waits is of the leader epoch that its node leads in (I14), so that nothing of a reign that
is over is ever sent; a high watermark that was saved is not above the end of its log (I0), so that the next process
does not take the log for one that lost committed records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.sim.committed import Broken

if TYPE_CHECKING:
    from strandline.sim.process import Process


def check_own(process: Process) -> None:
    """Look at one process.

    Raises:
        Broken: I14 or I0.
    """
    state = process.core.state
    for tp, proposal in process.core.proposals.items():
        leader = state.leaders.get(tp)
        if leader is None or leader.image.leader_epoch != proposal.leader_epoch:
            now = "leads nothing" if leader is None else f"leads in epoch {leader.image.leader_epoch}"
            what = f"a proposal of epoch {proposal.leader_epoch} waits for p{tp.partition}"
            raise Broken("I14", f"{what} on node {process.node_id}, which {now} there")
    for tp, saved in process.saved.items():
        log = state.logs.get(tp)
        if log is not None and saved > log.leo:
            raise Broken("I0", f"node {process.node_id} saved HW {saved}, its log ends at {log.leo}", offset=log.leo)
