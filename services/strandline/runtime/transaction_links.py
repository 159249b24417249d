"""This node's questions to other nodes about transactions: partitions for coordinators, markers for leaders.

Invariants: every question ends in exactly one event, an answer or a refusal; nothing is retried here, the core retries.
At most `MOST_UNDER_WAY` requests of each kind are under way to a node; questions that come meanwhile are sent together
in the next one, so a slow node gets fewer and larger requests. `runtime.ports.TransactionPeers` does the calls.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.log.effects import SendAddPartitions, SendTxnMarkers
from strandline.core.log.events import AddPartitionsAnswered, TxnMarkersAnswered
from strandline.core.transactions.messages import AddPartitions, MarkerQuestion, ProducerIdentity, TxnMarkerAnswer
from strandline.core.types import LeaderEpoch, NodeId, TopicPartition
from strandline.runtime.driver import Driver
from strandline.runtime.ports import Core, TransactionPeers, TransactionPlaces

MOST_WAITING = 10_000
"""Most questions of one kind that wait for one node; further ones are refused."""
MOST_IN_A_REQUEST = 1_000
MOST_UNDER_WAY = 4
"""Concurrent requests of one kind to one node. More than one, because a request is answered only with the last of its
questions, and a coordinator may hold a question as long as a partition lacks its marker (X9)."""

_FULL = Refusal(
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    "too many questions about transactions wait for that node; back off and ask again",
    Outcome.NOT_APPENDED,
)
_Question = TypeVar("_Question")


class _Line(Generic[_Question]):
    """The questions that wait for one node, and the tasks that send them."""

    def __init__(self, ask: Callable[[Sequence[_Question]], Coroutine[Any, Any, None]], most_under_way: int) -> None:
        self._ask = ask
        self._most_under_way = most_under_way
        self._waiting: deque[_Question] = deque()
        # Whether a task was created and has taken nothing yet: it will take all questions of the current step.
        self._is_starting = False
        self.tasks: set[asyncio.Task[None]] = set()

    def put(self, question: _Question, done: Callable[[asyncio.Task[None]], None]) -> bool:
        """Queue a question; return False if too many wait."""
        if len(self._waiting) >= MOST_WAITING:
            return False
        self._waiting.append(question)
        if not self._is_starting and len(self.tasks) < self._most_under_way:
            self._is_starting = True
            task = asyncio.get_running_loop().create_task(self._run())
            self.tasks.add(task)
            task.add_done_callback(done)
        return True

    async def _run(self) -> None:
        self._is_starting = False
        while self._waiting:
            size = min(len(self._waiting), MOST_IN_A_REQUEST)
            await self._ask([self._waiting.popleft() for _ in range(size)])
        # Here and not when the task is done: a question that came in between would find no task to send it.
        task = asyncio.current_task()
        assert task is not None
        self.tasks.discard(task)


class TransactionLinks:
    """Sends this node's questions about transactions (`runtime.ports.Transactions`)."""

    def __init__(
        self,
        driver: Driver[Core],
        places: TransactionPlaces,
        peers: TransactionPeers,
        *,
        most_under_way: int = MOST_UNDER_WAY,
    ) -> None:
        self._most_under_way = most_under_way
        self._driver = driver
        self._places = places
        self._peers = peers
        self._adding: dict[NodeId, _Line[SendAddPartitions]] = {}
        self._marking: dict[NodeId, _Line[MarkerQuestion]] = {}
        self._closed = False

    async def close(self) -> None:
        """Send nothing more; neither requests under way nor questions of the last steps end in an event."""
        self._closed = True
        under_way = [task for line in self._adding.values() for task in line.tasks]
        under_way += [task for line in self._marking.values() for task in line.tasks]
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await self._peers.close()

    def send_add_partitions(self, effect: SendAddPartitions) -> AddPartitionsAnswered | None:
        """Ask the coordinator of a transaction."""
        if self._closed:
            return None
        node = self._places.coordinator_of(effect.transactional_id)
        if isinstance(node, Refusal):
            return self._added(effect, node)
        line = self._adding.get(node)
        if line is None:
            line = self._adding[node] = _Line(partial(self._ask_to_add, node), self._most_under_way)
        return None if line.put(effect, self._done) else self._added(effect, _FULL)

    def send_txn_markers(self, effect: SendTxnMarkers) -> TxnMarkersAnswered | None:
        """Ask leaders to write markers; those that cannot be sent are refused within the step."""
        if self._closed:
            return None
        refused: list[TxnMarkerAnswer] = []
        for marker in effect.markers:
            node = self._places.leader_of(marker.tp)
            if not isinstance(node, Refusal) and self._line_of_markers(node).put(
                MarkerQuestion(effect.tp, effect.leader_epoch, marker), self._done
            ):
                continue
            refused.append(TxnMarkerAnswer(marker, node if isinstance(node, Refusal) else _FULL))
        if not refused:
            return None
        return TxnMarkersAnswered(self._driver.clock(), effect.tp, effect.leader_epoch, tuple(refused))

    def _line_of_markers(self, node: NodeId) -> _Line[MarkerQuestion]:
        line = self._marking.get(node)
        if line is None:
            line = self._marking[node] = _Line(partial(self._ask_to_mark, node), self._most_under_way)
        return line

    async def _ask_to_add(self, node: NodeId, batch: Sequence[SendAddPartitions]) -> None:
        for part in _each_id_once(batch):
            together = _together(part)
            answers = await _answers(self._peers.add_partitions(node, list(together)), len(together))
            for effects, refusal in zip(together.values(), answers, strict=True):
                for effect in effects:
                    if not self._closed:
                        self._driver.step(self._added(effect, refusal))

    async def _ask_to_mark(self, node: NodeId, batch: Sequence[MarkerQuestion]) -> None:
        answers = await _answers(self._peers.write_markers(node, batch), len(batch))
        heard: dict[tuple[TopicPartition, LeaderEpoch], list[TxnMarkerAnswer]] = {}
        for question, refusal in zip(batch, answers, strict=True):
            whose = (question.coordinator, question.leader_epoch)
            heard.setdefault(whose, []).append(TxnMarkerAnswer(question.marker, refusal))
        for (tp, leader_epoch), of_one in heard.items():
            if not self._closed:
                self._driver.step(TxnMarkersAnswered(self._driver.clock(), tp, leader_epoch, tuple(of_one)))

    def _added(self, effect: SendAddPartitions, refusal: Refusal | None) -> AddPartitionsAnswered:
        return AddPartitionsAnswered(self._driver.clock(), effect.correlation_id, refusal)

    def _done(self, task: asyncio.Task[None]) -> None:
        """End the process if a task ended with an exception, which only a bug can cause."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._driver.fail(error)


def _each_id_once(batch: Sequence[SendAddPartitions]) -> list[list[SendAddPartitions]]:
    """Split questions into parts that have one identity for each transactional id; almost always one part."""
    parts: list[tuple[dict[str, ProducerIdentity], list[SendAddPartitions]]] = []
    for effect in batch:
        identity = ProducerIdentity(effect.producer_id, effect.producer_epoch)
        for identities, part in parts:
            if identities.setdefault(effect.transactional_id, identity) == identity:
                part.append(effect)
                break
        else:
            parts.append(({effect.transactional_id: identity}, [effect]))
    return [part for _, part in parts]


def _together(part: Sequence[SendAddPartitions]) -> dict[AddPartitions, list[SendAddPartitions]]:
    """One question for each transaction, with the effects that it answers."""
    of_one: dict[str, list[SendAddPartitions]] = {}
    for effect in part:
        of_one.setdefault(effect.transactional_id, []).append(effect)
    return {
        AddPartitions(
            transactional_id=transactional_id,
            identity=ProducerIdentity(effects[0].producer_id, effects[0].producer_epoch),
            partitions=tuple(dict.fromkeys(effect.tp for effect in effects)),
        ): effects
        for transactional_id, effects in of_one.items()
    }


async def _answers(asked: Awaitable[Sequence[Refusal | None]], count: int) -> Sequence[Refusal | None]:
    """The answers to a request; if it fails, its refusal for each of its questions."""
    try:
        return await asked
    except Refused as error:
        return (Refusal(error.refusal.code, error.refusal.message, Outcome.NOT_APPENDED),) * count
