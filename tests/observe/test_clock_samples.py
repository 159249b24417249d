"""The controller reports each node's clock offset twice a minute, from what the node measured."""

from __future__ import annotations

from dataclasses import replace

from controller_builders import Controller

from strandline.core.messages import Heartbeat
from strandline.core.state_events import ClockSample
from strandline.core.types import NodeEpoch, NodeId
from strandline.observe.controllers import EVERY_MS, ClockSamples

BEAT = Heartbeat(
    cluster_id="c",
    node_id=NodeId(2),
    node_epoch=NodeEpoch(1),
    metadata_offset=0,
    clock_offset_us=-1_500,
    clock_err_us=200,
)


def test_a_measurement_is_reported_at_once_and_then_every_half_minute() -> None:
    """The report does not depend on how often the node sends heartbeats; each node has its own half minute."""
    samples = ClockSamples()
    times = [now_ms for now_ms in range(0, 100_000, 2_000) if samples(BEAT, now_ms) is not None]

    assert times == [0, EVERY_MS, 2 * EVERY_MS, 3 * EVERY_MS]
    third = replace(BEAT, node_id=NodeId(3))
    assert samples(third, 99_000) == ClockSample(NodeId(3), offset_us=-1_500, err_us=200)


def test_nothing_is_reported_without_a_measurement() -> None:
    """A node's first heartbeat and one of an older release carry no measurement, and give no sample."""
    silent = replace(BEAT, clock_offset_us=None, clock_err_us=None)

    assert ClockSamples()(silent, 0) is None


def test_the_controller_emits_the_sample_of_an_accepted_heartbeat() -> None:
    """Every heartbeat of a registered process is shown to the samples, and what they return leaves as an event."""
    controller = Controller(clock_sample=ClockSamples())
    controller.start(2)

    controller.heartbeat(2, clock_offset_us=-1_500, clock_err_us=200)
    controller.heartbeat(2, node_epoch=NodeEpoch(77), clock_offset_us=1, clock_err_us=1)

    samples = [effect.event for effect in controller.emitted if isinstance(effect.event, ClockSample)]
    assert [(s.subject_node_id, s.offset_us, s.err_us) for s in samples] == [(NodeId(2), -1_500, 200)]
