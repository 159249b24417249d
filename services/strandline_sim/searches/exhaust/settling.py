"""Merges states that differ only in irrelevant ways: in old metadata, or in the numbers of partition epochs.

Invariant: nothing a node or the controller can do distinguishes two states that settle to one. Metadata that no node
would take is dropped, metadata that only followers would take keeps the leader and its epoch alone, and partition
epochs, which are only compared with one another and grow, are replaced by their rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from typing import NamedTuple

from strandline.core.control.alter_partition import Attempts, alter_partitions
from strandline.core.control.draft import Draft
from strandline.core.control.election import Elected, ElectionType
from strandline.core.control.leadership import fence, install, unfence
from strandline.core.control.state import ClusterHeader, ClusterState, EpochSkips, NodeRecord
from strandline.core.messages import AlterPartitionAnswer, AlterPartitionRequest, PartitionImage, TopicImage
from strandline.core.types import NodeId
from strandline_sim.searches.breadth_first import Interned
from strandline_sim.searches.exhaust.bench import CLUSTER, TOPIC, TP, Bench
from strandline_sim.searches.exhaust.local import Data, Image, Leading, Local, Rec, partition_epochs, rebased

FOLLOWERS_ONLY = -1
"""Partition epoch of metadata that only followers can still take; for them any that is not below their own will do."""

Ranks = tuple[tuple[int, int], ...]


class ControllerSide(NamedTuple):
    """The controller's side."""

    now: Image
    """Its committed state."""
    published: tuple[Image, ...]
    """The metadata that some node can still receive, oldest first: it may be late, and nodes may skip it."""


class Standing(NamedTuple):
    """The part of a node that decides which metadata it would take."""

    leader_epoch: int
    leader: int | None
    leads: bool
    known_at: int
    """The partition epoch it knows; 0 for a follower, because nothing depends on it."""
    partition_epochs: tuple[int, ...]


class Settling:
    """Settles states; remembers by the cluster and the nodes' standings, of which there are few."""

    def __init__(self, clusters: Interned[ControllerSide], locals_: Interned[Local]) -> None:
        self._clusters = clusters
        self._locals = locals_
        self._standings: Interned[Standing] = Interned()
        self._standing_of: list[int] = []
        self._exposed: list[int] = []
        self._settled: dict[tuple[int, ...], tuple[int, Ranks]] = {}
        self._rebased: dict[tuple[int, Ranks], int] = {}

    def exposed(self, up_to: int) -> list[int]:
        """By local: how far consumers can read at a leader; 0 for followers. Reaches to ``up_to``."""
        if up_to >= len(self._exposed):
            self._describe()
        return self._exposed

    def settle(self, cluster: int, data: int, nodes: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
        """The state that represents this one and all equivalent ones; ``data`` is passed through."""
        if max(nodes) >= len(self._standing_of):
            self._describe()
        standing_of = self._standing_of
        key = (cluster, *[standing_of[n] for n in nodes])
        known = self._settled.get(key)
        if known is None:
            known = self._settled[key] = self._settle(cluster, nodes)
        after, ranks = known
        if ranks:
            nodes = tuple(self._rebase(n, ranks) for n in nodes)
        return after, data, nodes

    def _describe(self) -> None:
        for local in self._locals.values[len(self._standing_of) :]:
            self._standing_of.append(self._standings.id_of(_standing(local)))
            self._exposed.append(local.hw if isinstance(local.part, Leading) else 0)

    def _settle(self, cluster_id: int, nodes: tuple[int, ...]) -> tuple[int, Ranks]:
        cluster = self._clusters.values[cluster_id]
        standings = [self._standings.values[self._standing_of[n]] for n in nodes]
        published = _pruned(cluster.published, standings)
        epochs = {cluster.now.partition_epoch}
        epochs.update([image.partition_epoch for image in published])
        for standing in standings:
            epochs.update(standing.partition_epochs)
        epochs.discard(FOLLOWERS_ONLY)
        if len(epochs) == max(epochs) + 1:
            if published != cluster.published:
                cluster_id = self._clusters.id_of(ControllerSide(cluster.now, published))
            return cluster_id, ()
        ranks = {epoch: rank for rank, epoch in enumerate(sorted(epochs))}
        ranks[FOLLOWERS_ONLY] = FOLLOWERS_ONLY
        settled = ControllerSide(_ranked(cluster.now, ranks), tuple([_ranked(image, ranks) for image in published]))
        return self._clusters.id_of(settled), tuple(ranks.items())

    def _rebase(self, local_id: int, ranks: Ranks) -> int:
        key = (local_id, ranks)
        known = self._rebased.get(key)
        if known is None:
            known = self._rebased[key] = self._locals.id_of(rebased(self._locals.values[local_id], dict(ranks)))
        return known


def is_news(image: Image, local: Local) -> bool:
    """Whether this node would take ``image``, and would change by it."""
    return _takes(image, _standing(local))


def _standing(local: Local) -> Standing:
    leader = None if local.image is None else local.image.leader
    known_at = 0 if local.image is None else local.image.partition_epoch
    return Standing(local.leader_epoch, leader, isinstance(local.part, Leading), known_at, partition_epochs(local))


def _pruned(published: tuple[Image, ...], nodes: list[Standing]) -> tuple[Image, ...]:
    kept: dict[Image, None] = {}
    for image in published:
        takers = [n for n, standing in enumerate(nodes) if _takes(image, standing)]
        if not takers:
            continue
        decides = image.leader is None or image.leader in takers or image.partition_epoch == FOLLOWERS_ONLY
        kept[image if decides else Image(image.leader, image.leader_epoch, (), (), FOLLOWERS_ONLY)] = None
    return tuple(kept)


def _takes(image: Image, standing: Standing) -> bool:
    if image.leader_epoch != standing.leader_epoch:
        return image.leader_epoch > standing.leader_epoch
    if image.partition_epoch == FOLLOWERS_ONLY:
        return False
    return (standing.leads or image.leader != standing.leader) and image.partition_epoch > standing.known_at


def _ranked(image: Image, ranks: dict[int, int]) -> Image:
    return image._replace(partition_epoch=ranks[image.partition_epoch])


# ---- control
# What the controller can do to the partition, with the production decisions: elections, fencing, AlterPartition.
#
# Invariant: *that* something happens (a node is suspected, an election is held, and who is first in order) is the
# model's free choice; *what follows* (epochs, ISR, ELR, who may be elected, which proposal is accepted) is decided by
# `core.leadership`, `core.election`, `core.elr`, `core.draft` and `core.alter_partition`.


class PartitionController:
    """The controller of one partition, as functions of its committed state."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def first(self) -> Image:
        """The state before any election: all replicas in the ISR, no leader, no leader epoch yet."""
        return Image(None, -1, self._bench.replicas, (), 0)

    def elections(self, now: Image) -> Iterator[tuple[int, Image]]:
        """Every member of the ISR (of the ELR, if the ISR is empty) that could become leader, with the state then."""
        for node_id in now.isr or now.elr:
            if node_id != now.leader:
                draft = self._draft(now)
                kind = ElectionType.ISR if node_id in now.isr else ElectionType.ELR
                partition = draft.partition(TP)
                assert partition is not None
                install(draft, partition, Elected(NodeId(node_id), kind), "search")
                yield node_id, _image(draft)

    def fencings(self, now: Image) -> Iterator[tuple[int, Image]]:
        """A member is fenced, leaves the ISR, and returns at once: the member, and the state then.

        The successor of a fenced leader depends on the order of assignment, which the model leaves open.
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
        # The model is one reign, which created the partition: its epochs rise by one.
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


# ---- symmetry
# Finds the states that differ only in the names of the replicas, and the one that represents them.
#
# Invariant: the rules treat all replicas alike (the order of assignment, which does not, is left open by `control`), so
# what can follow from a state is what can follow from it with the names exchanged, with the names exchanged.


Names = tuple[int, ...]
"""``names[old]`` is the new name of a replica."""

State = tuple[int, ...]


class _Renamed:
    """Values under other names, by number."""

    __slots__ = ("clusters", "data", "locals")

    def __init__(self) -> None:
        self.clusters: dict[int, int] = {}
        self.data: dict[int, int] = {}
        self.locals: dict[int, int] = {}


class Symmetry:
    """Finds the representative of a state."""

    def __init__(self, clusters: Interned[ControllerSide], data: Interned[Data], locals_: Interned[Local]) -> None:
        self._clusters = clusters
        self._data = data
        self._locals = locals_
        self._looks: Interned[tuple[object, ...]] = Interned()
        self._look_of: list[int] = []
        self._orders: dict[tuple[int, ...], tuple[Names, ...]] = {}
        self._tables: dict[Names, _Renamed] = {}

    def representative(self, state: State) -> State:
        """The state that is searched for all of its kind: nodes in the order of their looks, the least such state."""
        nodes = state[2:]
        if max(nodes) >= len(self._look_of):
            self._describe()
        look_of = self._look_of
        looks = tuple([look_of[n] for n in nodes])
        orders = self._orders.get(looks)
        if orders is None:
            orders = self._orders[looks] = _orders(looks)
        if len(orders) == 1:
            return state if orders[0] == _SAME[len(nodes)] else self._renamed(state, orders[0])
        return min([self._renamed(state, names) for names in orders])

    def _renamed(self, state: State, names: Names) -> State:
        table = self._tables.get(names)
        if table is None:
            table = self._tables[names] = _Renamed()
        clusters, data, nodes = table.clusters, table.data, table.locals
        try:
            out = [clusters[state[0]], data[state[1]], *names]
            for old, local in enumerate(state[2:]):
                out[2 + names[old]] = nodes[local]
        except KeyError:
            self._rename(state, names, table)
            return self._renamed(state, names)
        return tuple(out)

    def _rename(self, state: State, names: Names, table: _Renamed) -> None:
        """Fill in the missing entries of the table for this state."""
        if state[0] not in table.clusters:
            now, published = self._clusters.values[state[0]]
            renamed = ControllerSide(
                _exchanged_image(now, names), tuple([_exchanged_image(image, names) for image in published])
            )
            table.clusters[state[0]] = self._clusters.id_of(renamed)
        if state[1] not in table.data:
            written, committed = self._data.values[state[1]]
            table.data[state[1]] = self._data.id_of(Data(written, _log(committed, names)))
        for local in state[2:]:
            if local not in table.locals:
                table.locals[local] = self._locals.id_of(_node(self._locals.values[local], names))

    def _describe(self) -> None:
        for local in self._locals.values[len(self._look_of) :]:
            self._look_of.append(self._looks.id_of(_look(local)))


_SAME = {count: tuple(range(count)) for count in range(8)}


def _orders(looks: tuple[int, ...]) -> tuple[Names, ...]:
    """Every way to name the nodes so that their looks are in order."""
    wanted = sorted(looks)
    return tuple(
        names
        for names in permutations(range(len(looks)))
        if all(wanted[names[old]] == look for old, look in enumerate(looks))
    )


def _look(local: Local) -> tuple[object, ...]:
    """The part of a node that does not depend on the names of the replicas."""
    part = local.part
    epochs = tuple(record.epoch for record in local.log)
    if isinstance(part, Leading):
        leos = sorted(-1 if leo is None else leo for leo in part.remote_leos)
        sizes = (len(part.isr), len(part.proposed or ()), part.asking, part.epoch_start_offset, len(part.agreed), *leos)
        return (local.leader_epoch, local.hw, local.epochs, epochs, True, sizes)
    return (local.leader_epoch, local.hw, local.epochs, epochs, False, None if part is None else part.state)


def _exchanged_image(image: Image, names: Names) -> Image:
    return Image(
        None if image.leader is None else names[image.leader],
        image.leader_epoch,
        tuple(sorted([names[n] for n in image.isr])),
        tuple(sorted([names[n] for n in image.elr])),
        image.partition_epoch,
    )


def _log(log: tuple[Rec, ...], names: Names) -> tuple[Rec, ...]:
    return tuple(Rec(record.epoch, names[record.writer]) for record in log)


def _node(local: Local, names: Names) -> Local:
    part = local.part
    if isinstance(part, Leading):
        leos = list(part.remote_leos)
        for old, leo in enumerate(part.remote_leos):
            leos[names[old]] = leo
        part = part._replace(
            isr=tuple(sorted([names[n] for n in part.isr])),
            proposed=None if part.proposed is None else tuple(sorted([names[n] for n in part.proposed])),
            remote_leos=tuple(leos),
            agreed=tuple(sorted(names[old] for old in part.agreed)),
        )
    image = None if local.image is None else _exchanged_image(local.image, names)
    return Local(names[local.node_id], image, _log(local.log, names), local.hw, local.epochs, part)
