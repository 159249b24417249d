"""What can happen next in a world of transactions."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

from strandline.core.errors import ErrorCode, Refusal
from strandline.core.transactions.messages import AddPartitions, EndTxn, ProducerIdentity, TxnEnded
from strandline.core.transactions.records import TxnState
from strandline_sim.searches import breadth_first
from strandline_sim.searches.breadth_first import Interned
from strandline_sim.searches.transactions import coordinator as coordinating, partition as leading
from strandline_sim.searches.transactions.coordinator import Coordinator
from strandline_sim.searches.transactions.partition import ID, PRODUCER, TPS, After, Entry, PartitionLog
from strandline_sim.searches.transactions.world import (
    Late,
    LateBatch,
    LateEnd,
    LateMarker,
    LateQuestion,
    ProducerClient,
    Sending,
    TransactionBounds,
    TransactionBroken,
    TransactionWorld,
    check,
    check_end,
    check_step,
    exchanged,
    start,
)

Step = tuple[str, TransactionWorld]

_SENT_AGAIN = frozenset(
    {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER}
)
"""Errors after which a producer's batch is sent again."""


def successors(world: TransactionWorld, bounds: TransactionBounds) -> Iterator[Step]:
    """Every possible step that changes something, with the world after it."""
    for name, after in _all(world, bounds):
        if after != world:
            yield name, after


def _all(world: TransactionWorld, bounds: TransactionBounds) -> Iterator[Step]:
    for p in (0, 1):
        yield from _of_partition(world, p)
        yield from _of_batch(world, p, bounds)
    yield from _of_client(world, bounds)
    if world.coordinator.row.state is TxnState.ONGOING:
        yield "the transaction's time is over", _coordinated(world, coordinating.timed_out(world.coordinator))
    if world.mishaps < bounds.mishaps:
        yield from _mishaps(world._replace(mishaps=world.mishaps + 1))
    for late in sorted(world.late, key=repr):
        yield _delivered(world, late)


def _of_partition(world: TransactionWorld, p: int) -> Iterator[Step]:
    """The steps of a partition itself, and the messages between it and the coordinator."""
    partition, coordinator = world.partitions[p], world.coordinator
    if partition.hw < len(partition.log):
        yield f"everything in p{p} is committed", _with(world, p, leading.committed(partition))
    if partition.question is not None and partition.question.answer is None:
        after, code = _added(coordinator, p, partition.question.epoch)
        asked = partition._replace(question=partition.question._replace(answer=code))
        yield f"the question of p{p} arrives: {code.name}", _with(_coordinated(world, after), p, (asked, ()))
    elif partition.question is not None:
        yield f"the coordinator's answer arrives at p{p}", _with(world, p, leading.agreed(partition))
    if p in coordinator.missing:
        sent = leading.produced(partition, coordinator.marker, is_heard=True)
        yield f"a marker arrives at p{p}", _with(world, p, sent)


def _added(coordinator: Coordinator, p: int, epoch: int) -> tuple[Coordinator, ErrorCode]:
    request = AddPartitions(
        transactional_id=ID, identity=ProducerIdentity(PRODUCER, epoch), partitions=(TPS[p],), verify_only=False
    )
    after, answer = coordinating.asked(coordinator, request)
    return after, answer.code if isinstance(answer, Refusal) else ErrorCode.NONE


def _of_batch(world: TransactionWorld, p: int, bounds: TransactionBounds) -> Iterator[Step]:
    """The steps of the producer's batch for one partition."""
    client = world.client
    if client.transaction > bounds.transactions:
        return
    if client.ends is None and client.sending[p] in (Sending.NOT_SENT, Sending.OUT):
        waiting = world._replace(client=_sending(client, p, Sending.WAITS))
        sent = leading.produced(world.partitions[p], Entry(client.epoch), is_heard=True)
        yield f"the producer's batch arrives at p{p}", _with(waiting, p, sent)


def _of_client(world: TransactionWorld, bounds: TransactionBounds) -> Iterator[Step]:
    """The steps by which the producer ends a transaction."""
    client = world.client
    if client.transaction > bounds.transactions:
        return
    if client.ends is not None:
        yield _ended(world, LateEnd(client.epoch, client.ends), is_heard=True)
        return
    if all(each in (Sending.NOT_SENT, Sending.DONE) for each in client.sending):
        yield "the producer commits", world._replace(client=client._replace(ends=True))
    yield "the producer aborts", world._replace(client=client._replace(ends=False))


def _ended(world: TransactionWorld, end: LateEnd, *, is_heard: bool) -> Step:
    request = EndTxn(transactional_id=ID, identity=ProducerIdentity(PRODUCER, end.epoch), committed=end.commits)
    after, answer = coordinating.asked(world.coordinator, request)
    if after.row.identity != world.coordinator.row.identity and end.epoch != len(world.decided):
        raise TransactionBroken(f"I38: a request to end epoch {end.epoch} decides epoch {len(world.decided)}")
    world = _coordinated(world, after)
    wish = "commit" if end.commits else "abort"
    if isinstance(answer, TxnEnded):
        after_it = world._replace(client=_next_transaction(world, end, answer)) if is_heard else world
        return f"the {wish} of epoch {end.epoch} arrives and is done", after_it
    assert isinstance(answer, Refusal)
    name = f"the {wish} of epoch {end.epoch} arrives: {answer.code.name}"
    if not is_heard or answer.code is ErrorCode.CONCURRENT_TRANSACTIONS:
        return name, world
    if answer.code is ErrorCode.INVALID_TXN_STATE and end.commits:
        if world.decided[end.epoch : end.epoch + 1] != (False,):
            raise TransactionBroken(f"I38: the producer hears that epoch {end.epoch} is not committed: {world.decided}")
        return name, world._replace(client=world.client._replace(ends=False))
    raise TransactionBroken(f"L13: no other producer has this identity, and {name}")


def _next_transaction(world: TransactionWorld, end: LateEnd, answer: TxnEnded) -> ProducerClient:
    decided = world.decided[end.epoch : end.epoch + 1]
    if decided and decided != (end.commits,):
        raise TransactionBroken(f"I38: the producer hears that epoch {end.epoch} is done as it wanted: {world.decided}")
    return ProducerClient(world.client.transaction + 1, answer.identity.producer_epoch)


def _mishaps(world: TransactionWorld) -> Iterator[Step]:
    """The mishaps, which a producer and a coordinator alone would never see."""
    for p, partition in enumerate(world.partitions):
        if any(request.end is None for request in partition.requests):
            yield f"what waits in p{p} waited too long", _with(world, p, leading.expired(partition))
        yield f"the leader of p{p} dies", _with(world, p, _orphaned(partition))
    yield "the coordinator starts again", world._replace(coordinator=coordinating.started_again(world.coordinator))
    for late in _under_way(world):
        if late not in world.late:
            yield f"a copy stays behind: {late}", world._replace(late=world.late | {late})


def _under_way(world: TransactionWorld) -> Iterator[Late]:
    client, coordinator = world.client, world.coordinator
    for p, partition in enumerate(world.partitions):
        if client.sending[p] in (Sending.OUT, Sending.WAITS):
            yield LateBatch(p, client.epoch)
        if partition.question is not None:
            yield LateQuestion(p, partition.question.epoch)
    for p in coordinator.missing:
        yield LateMarker(p, coordinator.marker)
    if client.ends is not None:
        yield LateEnd(client.epoch, client.ends)


def _delivered(world: TransactionWorld, late: Late) -> Step:
    """A late copy arrives; no caller waits for the answer."""
    world = world._replace(late=world.late - {late})
    if isinstance(late, LateEnd):
        name, after = _ended(world, late, is_heard=False)
        return f"late: {name}", after
    p = late.partition
    if isinstance(late, LateQuestion):
        after_question, code = _added(world.coordinator, p, late.epoch)
        return f"late: a question of p{p} for epoch {late.epoch}: {code.name}", _coordinated(world, after_question)
    entry = late.marker if isinstance(late, LateMarker) else Entry(late.epoch)
    return f"late: {entry} arrives at p{p}", _with(
        world, p, leading.produced(world.partitions[p], entry, is_heard=False)
    )


def _sending(client: ProducerClient, p: int, state: Sending) -> ProducerClient:
    first, second = client.sending
    return client._replace(sending=(state, second) if p == 0 else (first, state))


def _coordinated(world: TransactionWorld, after: Coordinator) -> TransactionWorld:
    """The world after a step of the coordinator, with its decision."""
    before = world.coordinator
    world = world._replace(coordinator=after)
    if after.row.identity == before.row.identity:
        return world
    epoch = before.row.identity.producer_epoch
    if after.row.identity.producer_epoch != epoch + 1 or len(world.decided) != epoch:
        raise TransactionBroken(f"X6: the epoch goes from {epoch} to {after.row.identity.producer_epoch}")
    return world._replace(decided=(*world.decided, after.row.commits))


def _with(world: TransactionWorld, p: int, after: After) -> TransactionWorld:
    """The world after a step of a partition, whose answers reach their callers."""
    partition, answers = after
    first, second = world.partitions
    world = world._replace(partitions=(partition, second) if p == 0 else (first, partition))
    for entry, code in answers:
        world = _told(world, p, entry, code)
    return world


def _told(world: TransactionWorld, p: int, entry: Entry, code: ErrorCode) -> TransactionWorld:
    client = world.client
    if entry.commits is not None:
        refusal = None if code is ErrorCode.NONE else Refusal(code, "")
        return _coordinated(world, coordinating.heard(world.coordinator, p, entry, refusal))
    if client.epoch != entry.epoch or client.ends is not None or client.sending[p] is not Sending.WAITS:
        return world
    settled = Sending.DONE if code is ErrorCode.NONE else Sending.REFUSED
    state = Sending.OUT if code in _SENT_AGAIN else settled
    return world._replace(client=_sending(client, p, state))


def _orphaned(partition: PartitionLog) -> After:
    """The world with another leader of a partition; a caller that waits for an answer is refused."""
    gone = [request.entry for request in partition.requests if request.is_heard]
    return leading.left_by_leader(partition), tuple((entry, ErrorCode.NOT_LEADER_OR_FOLLOWER) for entry in gone)


# ---- model
# The search of transactions: a world is one integer made of the numbers of its parts.
#
# Worlds that differ only in which partition is which are one.


Result = breadth_first.Result[TransactionWorld, str]
"""What a search found; a step is its name."""

_BITS = 20


def search(bounds: TransactionBounds, *, begin: TransactionWorld | None = None, **limits: Any) -> Result:
    """Search until a rule is broken, or nothing is left (`breadth_first.search`).

    ``begin``: the world to begin with; None for the one in which nothing was sent.
    """
    return breadth_first.search(_Transactions(bounds, begin or start()), **limits)


class _Transactions(breadth_first.Model[TransactionWorld, str, int]):
    """Worlds as integers."""

    def __init__(self, bounds: TransactionBounds, begin: TransactionWorld) -> None:
        self.bounds: TransactionBounds = bounds
        self._begin = begin
        self._fields: list[Interned[Hashable]] = [Interned() for _ in TransactionWorld._fields]

    def start(self) -> TransactionWorld:
        return self._begin

    def successors(self, world: TransactionWorld) -> Iterator[tuple[str, TransactionWorld]]:
        return iter(successors(world, self.bounds))

    def key(self, world: TransactionWorld) -> int:
        """One integer for a world and the one with exchanged partitions."""
        return min(self._number(world), self._number(exchanged(world)))

    def _number(self, world: TransactionWorld) -> int:
        key = 0
        for numbers, value in zip(self._fields, world, strict=True):
            number = numbers.id_of(value)
            assert number < 1 << _BITS, "too many values for the bits of a key"
            key = key << _BITS | number
        return key

    def world(self, key: int) -> TransactionWorld:
        found: list[Hashable] = []
        for numbers in reversed(self._fields):
            found.append(numbers.values[key & ((1 << _BITS) - 1)])
            key >>= _BITS
        return TransactionWorld(*reversed(found))  # type: ignore[arg-type]

    def after(self, key: int) -> Iterator[int]:
        """The worlds that can follow; each step is checked, and a world without any."""
        world = self.world(key)
        found = [after for _, after in self.successors(world)]
        for after in found:
            check_step(world, after)
        if not found:
            check_end(world, self.bounds)
        return map(self.key, found)

    def check(self, world: TransactionWorld) -> None:
        """Check I36 to I38 in one world."""
        check(world)
