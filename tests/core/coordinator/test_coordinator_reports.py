"""What a shard lets out as state events: what its machine reports, and that it has loaded."""

from __future__ import annotations

from cluster_of_cores import Cluster
from core_builders import TP, L, partition_image
from shard_cells import TOPIC, Cells, Get, coordinators, put

from strandline.core.coordinator.machine import Context, Decision, Reports
from strandline.core.coordinator.serving import Coordinators
from strandline.core.state_events import CoordinatorLoad, PartitionFailed
from strandline.core.types import LeaderEpoch, Offset
from strandline_sim.world.record_codec import IdentityCodec

ALONE = partition_image(replicas=(1,), isr=(1,))


class Reporting(Cells):
    """Reports each request; the event is any."""

    def __init__(self, reports: Reports) -> None:
        super().__init__()
        self._reports = reports

    def decide(self, request: object, context: Context) -> Decision:
        self._reports.add(PartitionFailed("asked", Offset(0), Offset(0), None, self._reports.leader_epoch))
        return super().decide(request, context)


def test_a_report_leaves_with_the_step_that_made_it() -> None:
    """At the coordinator's own partition and in its epoch, once."""
    cluster = Cluster(1, coordinators=Coordinators(codec=IdentityCodec(), machines={TOPIC: Reporting}))
    cluster.push_all(ALONE)
    cluster.advance(100, settle=True)
    cluster.ask_coordinator(Get("g"))

    (emit,) = cluster.emitted(L, "PARTITION_FAILED")

    assert emit.tp == TP
    assert isinstance(emit.event, PartitionFailed)
    assert emit.event.leader_epoch == LeaderEpoch(0)


def test_a_coordinator_reports_what_it_loaded() -> None:
    """Keys and bytes that the log has, in the epoch that it serves."""
    cluster = Cluster(1, coordinators=coordinators())
    cluster.push_all(ALONE)
    cluster.advance(100, settle=True)
    for value in range(12):
        cluster.ask_coordinator(put(**{f"c{value % 5}": value}))
        cluster.settle()
    cluster.restart(L)
    cluster.push(L, partition_image(replicas=(1,), isr=(1,), epoch=1, version=2))
    cluster.advance(100, settle=True)
    cluster.settle()

    first, second = (each.event for each in cluster.emitted(L, "COORDINATOR_LOAD"))

    assert isinstance(first, CoordinatorLoad)
    assert isinstance(second, CoordinatorLoad)
    assert (first.n_keys, first.bytes, first.leader_epoch) == (0, 0, LeaderEpoch(0))
    assert (second.n_keys, second.leader_epoch) == (5, LeaderEpoch(1))
    assert second.bytes > 0
