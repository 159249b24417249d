"""Whether a cluster is healthy, and if not, why: the judgement behind `strandline cluster status`.

Invariant: healthy means that every partition has a leader and all its replicas in the ISR, that no node that should
live is fenced or refuses writes for lack of space, and that every open transaction has a coordinator that will end it.
Whatever breaks that is named with its partitions and with what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline import client


_NAMED = 4
"""Partitions named in a sentence before it goes on with "and N more"."""

_FENCED_REMEDY = (
    "the node sends no heartbeats: start it, or look at its output; if its machine is gone, start a node with the same "
    "id and an empty directory on any machine: it copies everything"
)
_COMPARE_REMEDY = "start those nodes; `strandline topic elect --unclean` continues without them and may lose records"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """``problems`` are sentences, worst first; ``available`` says whether every partition has a leader."""

    available: bool
    problems: tuple[str, ...]

    @property
    def healthy(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems


def judge(
    image: client.DescribedCluster,
    held: Iterable[client.DescribedReplica] = (),
    hanging: Iterable[client.HangingTransaction] = (),
) -> Health:
    """The health of the cluster that ``image`` shows, of what nodes say of replicas that are not in sync, and of
    transactions that no coordinator will end."""
    hang = sorted({f"{one.producer.topic}-{one.producer.partition}" for one in hanging})
    stopped = [
        f"{one.topic}-{one.partition} on node {one.node_id}: {one.view.reason}"
        for one in held
        if one.view is not None and one.view.reason
    ]
    offline = [name for name, partition in named_partitions(image) if is_unavailable(partition)]
    waiting = [text for name, partition in named_partitions(image) if (text := _missing_logs(image, name, partition))]
    under_min = [name for name, partition in named_partitions(image) if is_under_min_isr(partition)]
    short = [name for name, partition in named_partitions(image) if is_under_replicated(partition)]
    fenced = [f"node {node.node_id}" for node in image.nodes if node.fenced]
    filled = [f"node {node.node_id}" for node in image.nodes if node.disk_nearly_full and not node.fenced]
    leaving = [f"node {node.node_id}" for node in image.nodes if node.shutting_down and not node.fenced]
    problems = [
        _sentence(offline, "no leader", "start a node of their ISR or ELR"),
        _sentence(waiting, "logs must be compared before one may lead", _COMPARE_REMEDY),
        _sentence(stopped, "stopped replicating", "`strandline log verify` compares the replicas"),
        _sentence(under_min, "fewer in-sync replicas than min.insync.replicas", "acks=all is refused meanwhile"),
        _sentence(short, "under-replicated", "a replica is down or catching up"),
        _sentence(hang, "hanging transactions hold readers back", "see `strandline txn find-hanging`"),
        _sentence(fenced, "fenced", _FENCED_REMEDY),
        _sentence(filled, "disk nearly full, writes refused", "free space, lower retention, or enlarge the volume"),
        _sentence(leaving, "in controlled shutdown", "wait, or start it again"),
    ]
    return Health(available=not offline, problems=tuple(problem for problem in problems if problem))


def own_topics_first(image: client.DescribedCluster) -> list[client.DescribedTopic]:
    """The topics by name, those that users made before the internal ones."""
    return sorted(image.topics, key=lambda topic: (topic.name.startswith("__"), topic.name))


def named_partitions(image: client.DescribedCluster) -> Iterator[tuple[str, client.DescribedPartition]]:
    """Every partition with its name `topic-index`, in the order of `own_topics_first`."""
    for topic in own_topics_first(image):
        for partition in topic.partitions:
            yield f"{topic.name}-{partition.partition}", partition


def is_unavailable(partition: client.DescribedPartition) -> bool:
    """No leader: nothing can be written or read at a leader."""
    return partition.leader is None


def is_under_min_isr(partition: client.DescribedPartition) -> bool:
    """Fewer in-sync replicas than acks=all needs (M47)."""
    return len(partition.isr) < partition.min_isr


def is_under_replicated(partition: client.DescribedPartition) -> bool:
    """A replica is assigned and not in sync; those that a move adds are not missed before it ends (KIP-455)."""
    return len(partition.isr) < len(partition.original or partition.replicas)


def is_wrong(partition: client.DescribedPartition) -> bool:
    """Anything of these."""
    return is_unavailable(partition) or is_under_min_isr(partition) or is_under_replicated(partition)


def _missing_logs(image: client.DescribedCluster, name: str, partition: client.DescribedPartition) -> str:
    """The nodes whose logs an offline partition waits for, if a live member could lead once they are compared (M65)."""
    live = {node.node_id for node in image.nodes if not node.fenced}
    members = sorted({*partition.isr, *partition.elr})
    missing = [member for member in members if member not in live]
    if not is_unavailable(partition) or not missing or missing == members:
        return ""
    return f"{name} lacks {_nodes_text(missing)}"


def _nodes_text(node_ids: Sequence[int]) -> str:
    return ("node " if len(node_ids) == 1 else "nodes ") + ", ".join(map(str, node_ids))


def _sentence(names: Sequence[str], what: str, remedy: str) -> str:
    if not names:
        return ""
    shown = ", ".join(names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{what}: {shown}{more} ({remedy})"


# ---- hanging_now
# Whether transactions hang, as `strandline cluster status` asks it: of the partitions that have one open alone (X20).
#
# Invariant: a look at a cluster is shown also where this cannot be answered; then nothing is said to hang.


async def hanging_now(admin: client.Admin, views: Iterable[client.DescribedLeader]) -> list[client.HangingTransaction]:
    """Hanging transactions in the partitions whose leader has an open one."""
    from strandline.client import ClusterUnreachable, Refused

    by_topic: dict[str, list[int]] = {}
    for view in views:
        if view.oldest_open_producer_id is not None:
            by_topic.setdefault(view.topic, []).append(view.partition)
    found: list[client.HangingTransaction] = []
    for topic, partitions in by_topic.items():
        try:
            found += await admin.find_hanging_transactions(topic, partitions)
        except (Refused, ClusterUnreachable):
            # A coordinator that is away is no hanging transaction, and what else is wrong is said elsewhere.
            continue
    return found
