"""What the controller can do to the partition, with the production decisions: elections, fencing, AlterPartition.

Invariant: *that* something happens (a node is suspected, an election is held, and who is first in order) is the
model's free choice; *what follows* (epochs, ISR, ELR, who may be elected, which proposal is accepted) is decided by
`core.leadership`, `core.election`, `core.elr`, `core.draft` and `core.alter_partition`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from strandline.core.control.alter_partition import Attempts, alter_partitions
from strandline.core.control.draft import Draft
from strandline.core.control.election import Elected, ElectionType
from strandline.core.control.leadership import fence, install, unfence
from strandline.core.control.state import ClusterHeader, ClusterState, EpochSkips, NodeRecord
from strandline.core.messages import AlterPartitionAnswer, AlterPartitionRequest, PartitionImage, TopicImage
from strandline.core.types import NodeId
from strandline.sim.exhaust.bench import CLUSTER, TOPIC, TP, Bench
from strandline.sim.exhaust.local import Image


class Controller:
    """The controller of one partition, as functions of its committed state."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def first(self) -> Image:
        """Before any election: all replicas in the ISR, nobody leads, no leader epoch was given yet."""
        return Image(None, -1, self._bench.replicas, (), 0)

    def elections(self, now: Image) -> Iterator[tuple[int, Image]]:
        """Every member of the ISR (the ELR, if there is none) that could be made leader: who, and the state then."""
        for node_id in now.isr or now.elr:
            if node_id != now.leader:
                draft = self._draft(now)
                kind = ElectionType.ISR if node_id in now.isr else ElectionType.ELR
                partition = draft.partition(TP)
                assert partition is not None
                install(draft, partition, Elected(NodeId(node_id), kind), "search")
                yield node_id, _image(draft)

    def fencings(self, now: Image) -> Iterator[tuple[int, Image]]:
        """A member is fenced, leaves the ISR, and returns at once: who, and the state then.

        Who is elected in place of a fenced leader depends on the order of assignment, which the model leaves open.
        """
        for node_id in now.isr:
            seen: set[Image] = set()
            for first in self._bench.replicas:
                draft = self._draft(now, first)
                fence(draft, [NodeId(node_id)], "search", {})
                unfence(draft, NodeId(node_id))
                after = _image(draft)
                if after not in seen and after != now:
                    seen.add(after)
                    yield node_id, after

    def alter(self, now: Image, request: AlterPartitionRequest) -> tuple[Image, AlterPartitionAnswer]:
        """A proposal arrives: the state then, and the answer."""
        draft = self._draft(now)
        answer = alter_partitions(draft, Attempts(), request)
        return _image(draft), answer

    def _draft(self, now: Image, first: int | None = None) -> Draft:
        bench = self._bench
        partition = bench.partition_image(now)
        if first is not None:
            others = tuple(n for n in bench.replicas if n != first)
            partition = replace(partition, replicas=(NodeId(first), *others))
        state = ClusterState(
            header=ClusterHeader(cluster_id=CLUSTER, controller_epoch=1, rules=bench.variant.rules),
            nodes={
                image.node_id: NodeRecord(image=image, incarnation_id=f"i{image.node_id}", directory_id="d")
                for image in bench.nodes
            },
            topics={TP.topic_id: TopicImage(name=TOPIC, topic_id=TP.topic_id, partitions=(partition,))},
        )
        skips = EpochSkips()
        # The model is one reign that has made the partition: its epochs rise by one.
        skips.follow([partition], {TP: None})
        return Draft(state, skips=skips)


def _image(draft: Draft) -> Image:
    partition: PartitionImage | None = draft.partition(TP)
    assert partition is not None
    return Image(
        partition.leader,
        partition.leader_epoch,
        tuple(sorted(partition.isr)),
        tuple(sorted(partition.elr)),
        partition.partition_epoch,
    )
