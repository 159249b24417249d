"""The controller reports each node's clock offset twice a minute, from what the node measured."""

from __future__ import annotations

from dataclasses import replace

from strandline.core.clock_samples import EVERY_MS, ClockSamples
from strandline.core.controller_effects import Emit
from strandline.core.controller_state import ClusterHeader, ClusterState
from strandline.core.draft import Draft
from strandline.core.messages import Heartbeat
from strandline.core.state_events import ClockSample, StateEvent
from strandline.core.types import NodeEpoch, NodeId

BEAT = Heartbeat(
    cluster_id="c",
    node_id=NodeId(2),
    node_epoch=NodeEpoch(1),
    metadata_offset=0,
    clock_offset_us=-1_500,
    clock_err_us=200,
)


def _told(samples: ClockSamples, beat: Heartbeat, now_ms: int) -> list[StateEvent]:
    draft = Draft(ClusterState(header=ClusterHeader(cluster_id="c")))
    samples.heard(draft, beat, now_ms)
    return [effect.event for effect in draft.finish()[1] if isinstance(effect, Emit)]


def test_a_measurement_is_told_at_once_and_then_every_half_minute() -> None:
    """The report does not depend on how often the node sends heartbeats; each node has its own half minute."""
    samples = ClockSamples()
    times = [now_ms for now_ms in range(0, 100_000, 2_000) if _told(samples, BEAT, now_ms)]

    assert times == [0, EVERY_MS, 2 * EVERY_MS, 3 * EVERY_MS]
    assert _told(samples, replace(BEAT, node_id=NodeId(3)), 99_000) == [
        ClockSample(NodeId(3), offset_us=-1_500, err_us=200)
    ]


def test_a_node_that_measured_nothing_is_not_told_of() -> None:
    """No sample is reported for a node without a measurement: its first heartbeat, or one of an older release."""
    silent = replace(BEAT, clock_offset_us=None, clock_err_us=None)

    assert _told(ClockSamples(), silent, 0) == []
