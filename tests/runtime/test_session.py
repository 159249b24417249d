"""Membership: what is retried, what ends the process, and what reaches the core."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from scripted_core import ProcessEnded, ScriptedCore, driver_with, end

from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.log import events
from strandline.core.log.effects import SendAlterPartition, SendReplicaLogs
from strandline.core.messages import (
    AlterPartitionAnswer,
    AlterPartitionRequest,
    Endpoint,
    Heartbeat,
    HeartbeatAnswer,
    MetadataImage,
    NodeRegistered,
    PositionProof,
    RegisterNode,
    ReplicaLogsReported,
    ReportReplicaLogs,
)
from strandline.core.types import NodeEpoch, NodeId, Role, Rules
from strandline.runtime.clock import Clocks
from strandline.runtime.exit_codes import ExitCode
from strandline.runtime.host import Host, TopicDirectory
from strandline.runtime.session import Session, SessionTimings

UNREACHABLE = Refusal(ErrorCode.NETWORK_EXCEPTION, "nobody there")
REQUEST = RegisterNode(
    node_id=NodeId(1),
    cluster_id=None,
    incarnation_id="i",
    directory_id="d",
    roles=frozenset({Role.LEADER, Role.FOLLOWER}),
    rules=Rules(),
    client_endpoint=Endpoint("c", 1),
    internal_endpoint=Endpoint("i", 1),
)
REGISTERED = NodeRegistered(node_epoch=NodeEpoch(7), controller_epoch=2, cluster_id="cluster", feature_level=1)


class NoWait:
    """A back-off that only yields."""

    def next_s(self) -> float:
        return 0

    def reset(self) -> None:
        return


class FakeController:
    """Answers from lists; a Refusal in a list is raised, the last entry is repeated."""

    def __init__(self) -> None:
        self.registrations: list[NodeRegistered | Refusal] = [REGISTERED]
        self.positions: list[PositionProof | None] = []
        self.answers: list[HeartbeatAnswer | Refusal] = [HeartbeatAnswer(is_fenced=False, heartbeat_interval_ms=1)]
        self.heartbeats: list[Heartbeat] = []
        self.images: asyncio.Queue[MetadataImage | None] = asyncio.Queue()
        self.decision: AlterPartitionAnswer | Refusal = AlterPartitionAnswer()
        self.reported: ReplicaLogsReported | Refusal = ReplicaLogsReported()
        self.watches = 0
        self._opened = asyncio.Condition()

    async def register(self, request: RegisterNode) -> NodeRegistered:
        return _said(self.registrations)

    async def heartbeat(self, request: Heartbeat, deadline_ms: int) -> HeartbeatAnswer:
        self.heartbeats.append(request)
        await asyncio.sleep(0)
        return _said(self.answers)

    async def watch(
        self, cluster_id: str, node_id: NodeId, node_epoch: NodeEpoch, position: PositionProof | None
    ) -> AsyncGenerator[MetadataImage | None, None]:
        self.watches += 1
        self.positions.append(position)
        async with self._opened:
            self._opened.notify_all()
        while True:
            yield await self.images.get()

    async def opened(self, count: int) -> None:
        """Wait until so many watches were opened."""
        async with asyncio.timeout(10), self._opened:
            await self._opened.wait_for(lambda: self.watches >= count)

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionAnswer:
        return _said([self.decision])

    async def report_logs(self, request: ReportReplicaLogs) -> ReplicaLogsReported:
        return _said([self.reported])


@asynccontextmanager
async def _running(forever: Coroutine[Any, Any, None]) -> AsyncIterator[asyncio.Task[None]]:
    """It runs until the end of the block."""
    running = asyncio.create_task(forever)
    try:
        yield running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def _run(forever: Coroutine[Any, Any, None], condition: Callable[[], bool]) -> None:
    """Run it until something is so, then cancel it."""
    async with _running(forever) as running, asyncio.timeout(10):
        while not condition():
            assert not running.done()
            await asyncio.sleep(0.001)


def _said(script: list[Any]) -> Any:
    answer = script.pop(0) if len(script) > 1 else script[0]
    if isinstance(answer, Refusal):
        raise Refused(answer.code, answer.message)
    return answer


def _session(controller: FakeController, **options: Any) -> tuple[Session, ScriptedCore, Host]:
    core = ScriptedCore()
    unused: Any = None
    host = Host(
        node_id=NodeId(1), driver=driver_with(core, {}), topics=TopicDirectory(), sizes=unused, low_space=lambda _: None
    )
    return Session(controller, host, stop=end, backoff=NoWait, **options), core, host


def _begun(controller: FakeController, **options: Any) -> tuple[Session, ScriptedCore, Host]:
    session, core, host = _session(controller, **options)
    session.begin(REGISTERED)
    return session, core, host


def _image(
    to_node_epoch: int = 7, controller_epoch: int = 2, metadata_offset: int = 4, position: PositionProof | None = None
) -> MetadataImage:
    return MetadataImage(
        cluster_id="cluster",
        controller_epoch=controller_epoch,
        metadata_offset=metadata_offset,
        is_snapshot=True,
        rules=Rules(),
        to_node_epoch=NodeEpoch(to_node_epoch),
        position=position,
    )


@pytest.fixture
def controller() -> FakeController:
    """A controller that takes what it is sent."""
    return FakeController()


async def test_a_controller_that_is_away_is_waited_for(controller: FakeController) -> None:
    """Registration is retried until it is answered, then the core gets the node's identity."""
    busy = NodeRegistered(refusal=Refusal(ErrorCode.DUPLICATE_BROKER_REGISTRATION))
    controller.registrations = [UNREACHABLE, UNREACHABLE, busy, REGISTERED]
    session, core, host = _session(controller)
    session.begin(await session.register(REQUEST))

    assert core.seen == [events.Registered(1_000, "cluster", NodeEpoch(7), 2)]
    assert (host.node_epoch, host.topics.cluster_id) == (7, "cluster")


@pytest.mark.parametrize(
    ("refusal", "timings"),
    [
        (Refusal(ErrorCode.UNSUPPORTED_VERSION, "levels 3-4"), SessionTimings()),
        (Refusal(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "in use"), SessionTimings(duplicate_ms=-1)),
    ],
    ids=["final", "in use for longer than a dead process's session could last"],
)
async def test_a_refused_registration_ends_the_process(
    controller: FakeController, refusal: Refusal, timings: SessionTimings
) -> None:
    """What no retry helps against, or did not help in time, is one clear line and a separate exit code."""
    controller.registrations = [NodeRegistered(refusal=refusal)]
    session, _, _ = _session(controller, timings=timings)
    with pytest.raises(ProcessEnded) as ended:
        await session.register(REQUEST)

    assert ended.value.code is ExitCode.REFUSED
    assert refusal.message in ended.value.line


@pytest.mark.parametrize("inside", [True, False], ids=["in the answer", "as a status"])
async def test_a_superseded_process_ends_with_its_own_code(inside: bool) -> None:
    """STALE_BROKER_EPOCH on a heartbeat: the process ends and does not register again."""
    stale = Refusal(ErrorCode.STALE_BROKER_EPOCH, "a newer process")
    controller = FakeController()
    controller.answers = [HeartbeatAnswer(refusal=stale) if inside else stale]
    session, _, _ = _begun(controller)
    with pytest.raises(ProcessEnded) as ended:
        await session.beat_forever()

    assert ended.value.code is ExitCode.FENCED


async def test_a_node_keeps_beating_through_failures(controller: FakeController) -> None:
    """Heartbeats without an answer are repeated; the interval comes from the answer."""
    controller.answers = [UNREACHABLE, UNREACHABLE, HeartbeatAnswer(is_fenced=False, heartbeat_interval_ms=1)]
    session, _, _ = _begun(controller)
    await _run(session.beat_forever(), lambda: len(controller.heartbeats) > 4)

    assert not session.is_fenced


async def test_a_hanging_fsync_ends_the_process_before_the_next_heartbeat(controller: FakeController) -> None:
    """A node whose disk hangs longer than the session time-out must not keep its session (M59)."""
    session, _, _ = _begun(controller, oldest_sync_ms=lambda _now_ms, _longest_look_ms: 9_001)
    with pytest.raises(ProcessEnded) as ended:
        await session.beat_forever()

    assert ended.value.code is ExitCode.FSYNC_HUNG
    assert controller.heartbeats == []


async def test_the_core_decides_which_metadata_is_believed(controller: FakeController) -> None:
    """Every image of the watch reaches the core; nothing of it is applied before the core requests that."""
    session, core, host = _begun(controller)
    for image in (_image(to_node_epoch=6), None, _image()):
        controller.images.put_nowait(image)
    await _run(session.watch_forever(), lambda: len(core.seen) > 2)

    assert [e.image for e in core.seen if isinstance(e, events.MetadataArrived)] == [_image(to_node_epoch=6), _image()]
    assert host.topics.metadata_offset == -1


async def test_an_image_reaches_the_core_in_the_turn_in_which_it_comes(controller: FakeController) -> None:
    """Nothing can end the watch between an image and its step: it would be lost, though its arrival was noted."""
    session, core, _ = _begun(controller)
    controller.images.put_nowait(_image())
    async with _running(session.watch_forever()), asyncio.timeout(10):
        while session.heard_us is None:  # noqa: ASYNC110 - a look from outside
            await asyncio.sleep(0)
        session.refresh()
        await controller.opened(2)

    assert [event.image for event in core.seen if isinstance(event, events.MetadataArrived)] == [_image()]


async def test_what_the_core_believed_is_named_by_the_next_heartbeat(controller: FakeController) -> None:
    """TR18: the heartbeat shows the controller which position this node has seen."""
    session, _, host = _begun(controller)
    session.believe(_image(metadata_offset=9))
    await _run(session.beat_forever(), lambda: bool(controller.heartbeats))

    assert host.topics.metadata_offset == 9
    assert controller.heartbeats[0].metadata_offset == 9


async def test_a_fenced_node_names_what_it_believed_at_once(controller: FakeController) -> None:
    """What unfences it is the position in its next heartbeat; later ones keep to the interval."""
    slow = HeartbeatAnswer(is_fenced=True, heartbeat_interval_ms=3_600_000)
    controller.answers = [slow, slow, replace(slow, is_fenced=False)]
    session, _, _ = _begun(controller)
    async with _running(session.beat_forever()):
        for offset in range(4, 9):
            session.believe(_image(metadata_offset=offset))
            for _ in range(10):
                await asyncio.sleep(0)

    assert [heartbeat.metadata_offset for heartbeat in controller.heartbeats] == [4, 5, 6]


async def test_a_heartbeat_says_how_far_the_clock_is_off_the_controllers() -> None:
    """The controller wrote its time in the middle of the round trip, give or take a half of that."""
    controller, mono_us = FakeController(), 7
    controller.answers = [HeartbeatAnswer(is_fenced=False, heartbeat_interval_ms=1, controller_wall_us=900_000)]
    beat = controller.heartbeat

    async def after_a_while(request: Heartbeat, deadline_ms: int) -> HeartbeatAnswer:
        nonlocal mono_us
        mono_us += 40_001
        return await beat(request, deadline_ms)

    controller.heartbeat = after_a_while  # type: ignore[method-assign]
    session, _, _ = _begun(controller, clocks=Clocks(lambda: mono_us, lambda: 1_000_000))
    await _run(session.beat_forever(), lambda: len(controller.heartbeats) > 1)

    said = [(heartbeat.clock_offset_us, heartbeat.clock_err_us) for heartbeat in controller.heartbeats[:2]]
    assert said == [(None, None), (120_000, 20_001)]


async def test_a_heartbeat_says_whether_the_disk_is_nearly_full(controller: FakeController) -> None:
    """Each one says what holds when it is sent, so that leadership can leave a node that refuses appends."""
    session, _, host = _begun(controller)
    low = ["9 bytes are free", None]
    host.low_space = lambda _: low.pop(0) if len(low) > 1 else low[0]
    await _run(session.beat_forever(), lambda: len(controller.heartbeats) > 1)

    assert [beat.disk_nearly_full for beat in controller.heartbeats[:2]] == [True, False]


async def test_the_position_of_the_registration_is_sent_from_then_on(controller: FakeController) -> None:
    """C34: the core keeps it, and the watch and every heartbeat carry it until something newer comes."""
    position = PositionProof(NodeEpoch(7), 2, 3, b"mac")
    session, core, _ = _session(controller)
    session.begin(replace(REGISTERED, position=position))
    await _run(session.beat_forever(), lambda: bool(controller.heartbeats))
    await _run(session.watch_forever(), lambda: bool(controller.positions))

    assert core.seen[0] == events.Registered(1_000, "cluster", NodeEpoch(7), 2, position)
    assert controller.heartbeats[0].position == position
    assert controller.positions[0] == position


async def test_a_refresh_opens_the_watch_anew(controller: FakeController) -> None:
    """RefreshMetadata ends the current watch, and the next one begins."""
    session, _, _ = _begun(controller)
    async with _running(session.watch_forever()):
        await controller.opened(1)
        session.refresh()
        await controller.opened(2)

    assert controller.watches == 2


async def test_a_watch_that_brings_nothing_is_opened_again(controller: FakeController) -> None:
    """Not even a sign of life for a few session time-outs: its connection hangs, and another one may not."""
    session, _, _ = _begun(controller, timings=SessionTimings(session_timeout_ms=1))
    async with _running(session.watch_forever()):
        await controller.opened(2)

    assert controller.watches >= 2


async def test_a_controlled_shutdown_waits_for_the_controllers_word(controller: FakeController) -> None:
    """want_shut_down is sent until should_shut_down arrives."""
    fine = HeartbeatAnswer(is_fenced=False, heartbeat_interval_ms=1)
    controller.answers = [fine, fine, HeartbeatAnswer(is_fenced=False, should_shut_down=True, heartbeat_interval_ms=1)]
    session, _, _ = _begun(controller)
    async with _running(session.beat_forever()):
        agreed = await session.say_farewell(5_000)

    assert agreed
    assert any(heartbeat.want_shut_down for heartbeat in controller.heartbeats)


async def test_a_shutdown_without_a_controller_gives_up_after_three_tries(controller: FakeController) -> None:
    """A node must be able to stop when no other node can take its leaders over."""
    controller.answers = [UNREACHABLE]
    beat = controller.heartbeat

    async def thrice(request: Heartbeat, deadline_ms: int) -> HeartbeatAnswer:
        if len(controller.heartbeats) == 3:
            await asyncio.Event().wait()
        return await beat(request, deadline_ms)

    controller.heartbeat = thrice  # type: ignore[method-assign]
    session, _, _ = _begun(controller, timings=SessionTimings(farewell_interval_ms=1))
    async with _running(session.beat_forever()), asyncio.timeout(10):
        agreed = await session.say_farewell(3_600_000)

    assert not agreed


@pytest.mark.parametrize(
    ("decision", "event"),
    [
        (AlterPartitionAnswer(), events.AlterPartitionAnswered(1_000, 5, AlterPartitionAnswer())),
        (
            Refusal(ErrorCode.STALE_CONTROLLER_EPOCH, "newer"),
            events.AlterPartitionAnswered(
                1_000, 5, AlterPartitionAnswer(refusal=Refusal(ErrorCode.STALE_CONTROLLER_EPOCH, "newer"))
            ),
        ),
        (UNREACHABLE, events.AlterPartitionFailed(1_000, 5, str(UNREACHABLE))),
    ],
    ids=["answered", "refused as a whole", "no answer"],
)
async def test_a_proposal_ends_in_exactly_one_event(controller: FakeController, decision: Any, event: Any) -> None:
    """A proposal ends in one event: an answer, a whole-request error, or no answer."""
    controller.decision = decision
    session, core, _ = _begun(controller)
    request = AlterPartitionRequest(
        cluster_id="cluster",
        controller_epoch=2,
        node_id=NodeId(1),
        node_epoch=NodeEpoch(7),
        request_sequence=5,
        partitions=(),
    )
    session.alter_partition(SendAlterPartition(request))
    await asyncio.sleep(0.01)

    assert core.seen[1:] == [event]


_REFUSED = Refusal(ErrorCode.NOT_CONTROLLER, "another one")


@pytest.mark.parametrize(
    ("reported", "refusal"),
    [(ReplicaLogsReported(), None), (ReplicaLogsReported(refusal=_REFUSED), _REFUSED), (UNREACHABLE, UNREACHABLE)],
    ids=["taken", "refused as a whole", "no answer"],
)
async def test_a_report_of_logs_ends_in_exactly_one_event(
    controller: FakeController, reported: Any, refusal: Refusal | None
) -> None:
    """Accepted, rejected or unanswered, the core gets it once, with the number of its report (M65)."""
    controller.reported = reported
    session, core, _ = _begun(controller)
    request = ReportReplicaLogs(cluster_id="cluster", node_id=NodeId(1), node_epoch=NodeEpoch(7), logs=())
    session.report_logs(SendReplicaLogs(3, request))
    await asyncio.sleep(0.01)

    assert core.seen[1:] == [events.ReplicaLogsAnswered(1_000, 3, refusal)]


async def test_heartbeats_return_the_proof_of_the_latest_position() -> None:
    """M72: a claim is sent with the newest proof that came with an image; an image without one keeps it."""
    early, late = (PositionProof(NodeEpoch(7), 2, offset, b"proof") for offset in (4, 5))
    controller = FakeController()
    session, _, _ = _begun(controller)
    for image in (
        _image(position=early),
        _image(metadata_offset=5, position=late),
        _image(metadata_offset=6),
        _image(metadata_offset=6, position=early),
    ):
        session.believe(image)
    await _run(session.beat_forever(), lambda: bool(controller.heartbeats))

    assert [heartbeat.position for heartbeat in controller.heartbeats[:1]] == [late]
