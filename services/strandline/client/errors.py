"""The exceptions of the client, and what each says about the records.

Invariant: every failure that a node or the controller answered is a `Refused` with its `Refusal`; only failures
to reach any node at all are a `ConnectionError`. A `SendFailed` is definite only if every attempt was (P2).
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Mapping, Sequence

from strandline.client.administer.described_by_coordinators import ListedGroup, ListedTransaction
from strandline.client.records import TopicPartition
from strandline.core.errors import ErrorCode, Outcome, Refusal, Refused
from strandline.core.types import LeaderEpoch, Offset


class ClusterUnreachable(ConnectionError):
    """No address of the bootstrap list answered in time."""


class ControllersAway(ClusterUnreachable):
    """No controller can be reached, so nothing was requested; producing and consuming continue without one."""

    def __init__(self, addresses: Sequence[str], why: str) -> None:
        super().__init__(
            f"controllers away: none answered at {', '.join(addresses)} ({why}); producing and consuming go on, "
            f"and what a controller decides can be asked for again once one is back"
        )


class NotAController(ClusterUnreachable):
    """Every bootstrap address answered, but as another service or as a node of an earlier release."""

    def __init__(self, addresses: Sequence[str]) -> None:
        listed = ", ".join(addresses)
        who = "is not a controller" if len(addresses) == 1 else "are not controllers"
        super().__init__(
            f"{listed} {who}: no metadata is served there, as on data nodes of releases before MetadataService; "
            f"give the controller's address as bootstrap"
        )


class ClientClosed(RuntimeError):
    """The producer, consumer or admin was used before its start or after its close."""


class WrongLoop(RuntimeError):
    """An asynchronous client was used outside of the event loop in which it was started."""

    def __init__(self, thread: str, loop: AbstractEventLoop) -> None:
        which = "an event loop that has ended, of" if loop.is_closed() else "the event loop of"
        super().__init__(
            f"this client was started in {which} thread '{thread}' and cannot be used in another one; start one in "
            "each loop (asyncio.run makes a new loop), or use the clients of strandline.client.sync in any thread"
        )


class BufferFull(BlockingIOError):
    """`Producer.send_nowait` found its buffer full, or the topic not known yet; `await Producer.send` waits."""


class SendFailed(Refused):
    """Records that were not acknowledged.

    ``refusal.outcome`` is NOT_APPENDED (definite: they never appear) only if every attempt said so; else
    MAY_APPEAR: zero times or once with an idempotent producer, at any later time.
    """

    def __init__(self, topic: str, partition: int, refusal: Refusal, attempts: int) -> None:
        # Without a word of the server the worse is assumed (P2).
        outcome = refusal.outcome or Outcome.MAY_APPEAR
        # Not super(): a class that is also another refusal has one, made here.
        Refused.__init__(self, refusal.code, refusal.message, outcome)
        self.topic = topic
        self.partition = partition
        self.attempts = attempts

    @property
    def is_definite(self) -> bool:
        """Whether the records are known never to appear."""
        return self.refusal.outcome is Outcome.NOT_APPENDED

    def __str__(self) -> str:
        said = "were not written" if self.is_definite else "may appear later, once or never"
        return f"{self.topic}-{self.partition}: {self.refusal} (records {said}; attempts: {self.attempts})"


class CommitFailed(Refused):
    """Some offsets were not committed: by partition in ``refused``. The other offsets of the call were committed.

    ``refusal`` is that of the first partition. Its outcome is NOT_APPENDED (definite: none of these offsets was
    committed) only if every attempt said so for every partition; else MAY_APPEAR: they may be committed, now or later.
    """

    def __init__(self, group: str, refused: Mapping[TopicPartition, Refusal]) -> None:
        first, refusal = next(iter(refused.items()))
        is_definite = all(one.outcome is Outcome.NOT_APPENDED for one in refused.values())
        outcome = Outcome.NOT_APPENDED if is_definite else Outcome.MAY_APPEAR
        message = f"group {group} at {first.topic}-{first.partition}: {refusal.message}"
        super().__init__(refusal.code, message, outcome)
        self.group = group
        self.refused = dict(refused)

    @property
    def is_definite(self) -> bool:
        """Whether the offsets are known not to be committed."""
        return self.refusal.outcome is Outcome.NOT_APPENDED


class TransactionAborted(Refused):
    """A transaction was aborted: read-committed consumers will not see its records, and none of its offsets is
    committed. The block may be run again, in a new transaction.

    ``refusal`` is the reason: a record or an offset was refused, or the transaction timed out.
    """

    def __init__(self, transactional_id: str, why: Refusal) -> None:
        message = f"the transaction of '{transactional_id}' was aborted: {why.message or why.code.name}; run it again"
        super().__init__(why.code, message, Outcome.NOT_APPENDED)
        self.transactional_id = transactional_id


class ProducerFenced(Refused):
    """Another producer was started with this transactional id, or the id was given up at its coordinator.

    This producer's open transaction is aborted. It cannot begin another one: end the process.
    """

    def __init__(self, transactional_id: str, why: Refusal) -> None:
        message = f"transactional id '{transactional_id}' belongs to another producer now ({why.message})"
        super().__init__(ErrorCode.PRODUCER_FENCED, message, Outcome.NOT_APPENDED)
        self.transactional_id = transactional_id


class OutcomeUnknown(Refused):
    """The coordinator was asked to commit, and did not answer within ``delivery_timeout_ms``: the transaction is
    committed as a whole, or will be aborted as a whole. `Transaction.commit` asks again; never assume either."""

    def __init__(self, transactional_id: str, why: Refusal) -> None:
        message = (
            f"whether the transaction of '{transactional_id}' is committed is not known ({why.message}); "
            f"await its commit() to ask again"
        )
        super().__init__(why.code, message, Outcome.MAY_APPEAR)
        self.transactional_id = transactional_id


class _Incomplete(Refused):
    def __init__(self, lacking: str, missing: Mapping[int, Refusal]) -> None:
        first = next(iter(missing.values()))
        why = "; ".join(f"node {node_id}: {refusal.message}" for node_id, refusal in missing.items())
        super().__init__(first.code, f"{lacking}, because nodes do not know theirs: {why}")
        self.missing = dict(missing)


class GroupsIncomplete(_Incomplete):
    """Some nodes did not report their groups. ``groups`` are those of the others, ``missing`` has the reasons.

    ``refusal`` is that of the first node.
    """

    def __init__(self, groups: Sequence[ListedGroup], missing: Mapping[int, Refusal]) -> None:
        super().__init__("groups may be missing from the list", missing)
        self.groups = list(groups)


class TransactionsIncomplete(_Incomplete):
    """Some nodes did not report their transactional ids. ``transactions`` are those of the others, ``missing`` has the
    reasons.

    ``refusal`` is that of the first node.
    """

    def __init__(self, transactions: Sequence[ListedTransaction], missing: Mapping[int, Refusal]) -> None:
        super().__init__("transactional ids may be missing", missing)
        self.transactions = list(transactions)


class TopicDeleted(Refused):
    """A topic in use was deleted. Records that a consumer had fetched before were returned first."""

    def __init__(self, topic: str) -> None:
        message = f"topic '{topic}' was deleted; a consumer may assign, and a producer send to, a new one of that name"
        super().__init__(ErrorCode.UNKNOWN_TOPIC_ID, message)
        self.topic = topic


class SendToDeletedTopic(SendFailed, TopicDeleted):
    """Records were not acknowledged, because their topic was deleted meanwhile."""


class OffsetOutOfRange(Refused):
    """A consumer's position is not in the log, and `auto_offset_reset` is "error"."""

    def __init__(self, topic: str, partition: int, offset: Offset, said: str) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, f"{topic}-{partition} at offset {offset}: {said}")
        self.topic = topic
        self.partition = partition
        self.offset = offset


class NothingCommitted(Refused):
    """A member was assigned a partition without a committed offset, and `auto_offset_reset` is "error"."""

    def __init__(self, group: str, topic: str, partition: int) -> None:
        message = (
            f"{topic}-{partition}: group {group} has committed nothing here, and auto_offset_reset 'error' begins "
            f"nowhere else; seek in on_assigned, set auto_offset_reset to 'earliest' or 'latest', or commit a first "
            f"offset while the group has no members: strandline group reset-offsets {group} "
            f"--topic {topic}:{partition} --to-earliest --execute"
        )
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self.group = group
        self.topic = topic
        self.partition = partition


class UnreadableBatch(Refused):
    """A batch whose records cannot be unpacked: it expands too far, or its producer compressed something else.

    Every read of it fails the same way; ``Consumer.seek(topic, partition, next_offset)`` continues after it.
    """

    def __init__(self, topic: str, partition: int, refusal: Refusal, *, offset: Offset, next_offset: Offset) -> None:
        why = refusal.message.partition(";")[0]
        message = (
            f"{topic}-{partition}: the batch with offsets {offset} to {next_offset - 1} cannot be read: {why}; "
            f"read on from offset {next_offset} to skip it"
        )
        super().__init__(refusal.code, message)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset


class LogTruncated(Refused):
    """The log changed after a consumer read it: records that it has read are no longer in the leader's log.

    Only an unclean election can do that (P4). ``offset`` is the consumer's position, ``diverging_offset``
    the first offset that is different now; None if the leader could not say.
    """

    def __init__(
        self, topic: str, partition: int, *, offset: Offset, epoch: LeaderEpoch | None, diverging_offset: Offset | None
    ) -> None:
        where = "an unknown offset" if diverging_offset is None else f"offset {diverging_offset}"
        message = (
            f"{topic}-{partition} at offset {offset}, read in leader epoch {epoch}: the log differs from {where} on"
        )
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.epoch = epoch
        self.diverging_offset = diverging_offset
