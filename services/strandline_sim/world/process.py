"""One life of a data node as others see it: it takes calls and events, makes calls, and ends.

Invariant: a dead process does nothing, whatever was planned for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from strandline.core.errors import ErrorCode, Refused
from strandline.core.log import events
from strandline.core.messages import (
    DeletePartition,
    OffsetQuestion,
    PositionProof,
    ProducePartition,
    Served,
    ServedPartition,
)
from strandline.core.types import Acks, NodeId, Offset, TopicPartition
from strandline.runtime.driver import Driver
from strandline.runtime.host import Host
from strandline.runtime.ports import Core
from strandline.runtime.session import Session
from strandline_sim.world.environment import Environment
from strandline_sim.world.machine import Machine
from strandline_sim.world.memory_logs import as_fetched
from strandline_sim.world.network import Call
from strandline_sim.world.virtual_loop import Life

_DELETION_TIMEOUT_MS = 10_000


class Process:
    """One life of a node. ``life`` is its number; everything in here is lost when it ends."""

    driver: Driver[Core]
    host: Host
    session: Session

    def __init__(self, machine: Machine[Process], life: int, given: dict[str, Any]) -> None:
        world = machine.world
        self.machine = machine
        self.world: Environment = world
        self.disk = machine.disk
        self.node_id = machine.node_id
        self.party_id = int(machine.node_id)
        self.life = life
        self.alive = True
        self.is_registered = False
        self.arrived: PositionProof | None = None
        """The newest position that came to this machine, whether or not the process has looked at it yet."""
        # What the checks remember of this life: the HW last seen of each log, and produces not answered yet.
        self.hws: dict[TopicPartition, int] = {}
        self.produces: dict[int, tuple[Acks, int, int, int]] = {}
        # The HW of each log as this life found or saved it.
        self.saved: dict[TopicPartition, int] = {}
        self._latest: set[int] = set()
        self.core = world.build.node_core(
            node_id=NodeId(machine.node_id), rules=world.rules, timings=world.node_timings, seen=self.disk.seen, **given
        )
        self.loop = world.loop
        self._running = Life(world.loop, machine.clock, self.hand, machine.work_aside)

    @property
    def now_ms(self) -> int:
        """This process's own clock."""
        return self.machine.clock.ms()

    def hand(self, action: Callable[..., object], *given: Any) -> None:
        """Run an action now, or when the process resumes."""
        if not self.alive:
            return
        if self.machine.is_paused:
            self.machine.inbox.append((self, action, given))
            return
        self._running.enter(action, *given)

    def step(self, event: events.Event) -> None:
        """Process an event and all that follows from it, then check everything."""
        self.driver.step(event)

    def own(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a background task; an error in it ends the run."""
        task = self.loop.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.driver.fail(error)

    def start(self) -> None:
        """Begin to live."""
        raise NotImplementedError

    def stop(self) -> None:
        """Begin a controlled shutdown, once."""
        raise NotImplementedError

    def end(self) -> None:
        """End this life: nothing of it runs any more."""
        self.alive = False
        self._running.shut()

    def gave(self, served: Sequence[ServedPartition]) -> None:
        """Check what a consumer is about to be given."""
        raise NotImplementedError

    async def call(
        self,
        target: int,
        serve: Callable[[Call], None],
        *,
        deadline_us: int,
        copies: bool = False,
        extra_us: int = 0,
        copy_us: int = 0,
    ) -> Any:
        """Make one call over the network.

        Raises:
            Refused: REQUEST_TIMED_OUT, no answer came.
        """
        answered = self.loop.create_future()
        self.world.network.call(
            self, target, serve, partial(_complete, answered), deadline_us=deadline_us, copies=copies,
            extra_us=extra_us, copy_us=copy_us,
        )  # fmt: skip
        answer = await answered
        if answer is None:
            raise Refused(ErrorCode.REQUEST_TIMED_OUT, "no answer")
        return answer

    def serve(self, call: Call, build: Callable[[int, int], events.Event]) -> None:
        """Step the event that ``build(now_ms, request_id)`` makes; its answer goes back over the network."""
        request_id = self._waiting(call)
        self.step(build(self.now_ms, request_id))

    def _waiting(self, call: Call) -> int:
        """A request id whose answer goes back over the network."""
        request_id = self.driver.calls.new_id()

        def sink(answer: Any) -> bool:
            self.world.network.reply(call, answer)
            return True

        self.driver.calls.wait(request_id, sink)
        return request_id

    def serve_produce(
        self, call: Call, acks: Acks, timeout_ms: int, part: ProducePartition, transactional_id: str | None = None
    ) -> None:
        """Serve the produce request of a client."""
        request_id = self._waiting(call)
        assert isinstance(part.payload, int)
        leo = self.machine.log(part.tp).leo
        self.produces[request_id] = (acks, part.payload, part.header.record_count, leo)
        self.step(
            events.ProduceArrived(self.now_ms, request_id, acks, timeout_ms, (part,), transactional_id=transactional_id)
        )

    def serve_latest(self, call: Call, question: OffsetQuestion) -> None:
        """Serve a client's question for the end of a partition."""
        request_id = self._waiting(call)
        self._latest.add(request_id)
        self.step(events.OffsetsAsked(self.now_ms, request_id, (question,)))

    def serve_consumer(
        self,
        call: Call,
        build: Callable[[int, int], events.Event],
        as_given: Callable[[ServedPartition], object] = as_fetched,
    ) -> None:
        """Serve and check a consumer's fetch. ``as_given`` turns each partition into what the consumer gets."""
        request_id = self.driver.calls.new_id()

        def sink(served: Served) -> bool:
            self.gave(served.partitions)
            self.world.network.reply(call, tuple(as_given(part) for part in served.partitions))
            return True

        self.driver.calls.wait(request_id, sink)
        self.step(build(self.now_ms, request_id))

    def delete_records(self, tp: TopicPartition, offset: int) -> None:
        """Delete records for an operator, who waits for it."""
        request_id = self.driver.calls.new_id()
        self.driver.calls.wait(request_id, lambda _: True)
        part = DeletePartition(tp, Offset(offset))
        self.step(events.DeleteRecordsAsked(self.now_ms, request_id, _DELETION_TIMEOUT_MS, (part,)))

    def __repr__(self) -> str:
        return f"<Process n{self.node_id} life {self.life}>"


def _complete(answered: asyncio.Future[Any], answer: Any) -> None:
    if not answered.done():
        answered.set_result(answer)
