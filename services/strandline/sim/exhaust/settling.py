"""Which states are the same although they look different: old metadata, and numbers of partition epochs.

Invariant: nothing a node or the controller can do distinguishes two states that settle to one. Metadata that no node
would take is dropped, metadata that only followers would take keeps the leader and its epoch alone, and partition
epochs, which are only compared with one another and grow, are replaced by their rank.
"""

from __future__ import annotations

from typing import NamedTuple

from strandline.sim.exhaust.interned import Interned
from strandline.sim.exhaust.local import Image, Leading, Local, partition_epochs, rebased

FOLLOWERS_ONLY = -1
"""Partition epoch of metadata that only followers can still take; for them any that is not below their own will do."""

Ranks = tuple[tuple[int, int], ...]


class Cluster(NamedTuple):
    """The controller's side."""

    now: Image
    """Its committed state."""
    published: tuple[Image, ...]
    """What it ever sent and some node can still receive, oldest first: it may be late, and nodes may skip it."""


class Standing(NamedTuple):
    """What of a node decides which metadata it would take."""

    leader_epoch: int
    leader: int | None
    leads: bool
    known_at: int
    """Partition epoch it knows; for a follower 0, for nothing depends on it."""
    partition_epochs: tuple[int, ...]


class Settling:
    """Settles states; remembers by the cluster and the nodes' standings, of which there are few."""

    def __init__(self, clusters: Interned[Cluster], locals_: Interned[Local]) -> None:
        self._clusters = clusters
        self._locals = locals_
        self._standings: Interned[Standing] = Interned()
        self._standing_of: list[int] = []
        self._exposed: list[int] = []
        self._settled: dict[tuple[int, ...], tuple[int, Ranks]] = {}
        self._rebased: dict[tuple[int, Ranks], int] = {}

    def exposed(self, up_to: int) -> list[int]:
        """By local: how far consumers can read at a node because it leads; 0 for followers. Reaches to ``up_to``."""
        if up_to >= len(self._exposed):
            self._describe()
        return self._exposed

    def settle(self, cluster: int, data: int, nodes: tuple[int, ...]) -> tuple[int, int, tuple[int, ...]]:
        """The state that represents this one and all its like; ``data`` is handed through."""
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
                cluster_id = self._clusters.id_of(Cluster(cluster.now, published))
            return cluster_id, ()
        ranks = {epoch: rank for rank, epoch in enumerate(sorted(epochs))}
        ranks[FOLLOWERS_ONLY] = FOLLOWERS_ONLY
        settled = Cluster(_ranked(cluster.now, ranks), tuple([_ranked(image, ranks) for image in published]))
        return self._clusters.id_of(settled), tuple(ranks.items())

    def _rebase(self, local_id: int, ranks: Ranks) -> int:
        key = (local_id, ranks)
        known = self._rebased.get(key)
        if known is None:
            known = self._rebased[key] = self._locals.id_of(rebased(self._locals.values[local_id], dict(ranks)))
        return known


def is_news(image: Image, local: Local) -> bool:
    """Whether this node would take ``image``, and would be another for it."""
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
