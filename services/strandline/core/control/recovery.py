"""Decides what the controller believes when its store is lost or too old: what the nodes themselves have stored (TR18).

Invariant (I14): every epoch of the recovered state is above every epoch that any given node knows; a partition
of which an assigned node was not given stays without a leader, because that node may know more. Where nodes know
different continuations of one history, only what all of these agree upon is believed (C38).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from strandline.core.control import state
from strandline.core.control.election import in_assignment_order
from strandline.core.control.nodes import recovered_tombstones, still_removed
from strandline.core.errors import ErrorCode, Refused
from strandline.core.messages import MetadataImage, NodeImage, PartitionImage, Position, TopicImage
from strandline.core.types import LeaderEpoch, NodeId, PartitionEpoch, TopicPartition

# ---- branches
# Decides which of several images of the cluster's state share a history, and which branched off (C38).
#
# Invariant: one image is called older than another only if the reigns that led to the later one, as far as they are
# known, contain it. What cannot be shown to share a history is a branch of its own: recovery then believes less.


class Branch(NamedTuple):
    """A newest image, and all given images that it continues, itself among them."""

    head: MetadataImage
    images: tuple[MetadataImage, ...]


class Lineage:
    """The reigns that given images and a store name, each with the one before it."""

    def __init__(self, images: Iterable[MetadataImage], reigns: state.Reigns, head: int) -> None:
        """``reigns`` and ``head``, the last offset, are the store's; both empty without one."""
        self._reigns, self._head = reigns, head
        self._parents = {each.reign_id: (each.previous_reign_id, each.first_offset) for each in reigns.values()}
        for image in images:
            for reign in image.reigns:
                self._parents.setdefault(reign.reign_id, (reign.previous_reign_id, reign.first_offset))

    def contains(self, newer: Position, older: Position) -> bool:
        """Whether the history that led to ``newer`` goes through ``older``."""
        if self._is_stored(newer) and self._is_stored(older):
            return older.metadata_offset <= newer.metadata_offset
        reign_id, last, seen = newer.reign_id, newer.metadata_offset, set[str]()
        while reign_id and reign_id not in seen:
            if reign_id == older.reign_id:
                return older.metadata_offset <= last
            seen.add(reign_id)
            reign_id, first = self._parents.get(reign_id, ("", 0))
            last = first - 1
        return False

    def _is_stored(self, position: Position) -> bool:
        return state.standing(self._reigns, self._head, position) is state.Standing.KNOWN


def position_sent(image: MetadataImage) -> Position | None:
    """The newest position that the owner of an image was sent: that of the image, or one that an answer named."""
    place, proof = image.place, image.position
    if place is None or proof is None or proof.reign_id != place.reign_id:
        return place
    return Position(place.reign_id, max(place.metadata_offset, proof.metadata_offset))


def branches(images: Sequence[MetadataImage], lineage: Lineage) -> list[Branch]:
    """The branches that the images belong to, the one with the highest numbers first.

    Images of a release without reign ids can only be compared by their numbers: they make one branch with all others.
    """
    by_number = sorted(images, key=lambda image: (image.controller_epoch, image.metadata_offset), reverse=True)
    places = [position_sent(image) for image in by_number]
    found: list[Branch] = []
    covered: set[int] = set()
    for index, head in enumerate(by_number):
        if index in covered:
            continue
        part = [at for at, place in enumerate(places) if _continues(lineage, places[index], place)]
        covered.update(part)
        found.append(Branch(head, tuple(by_number[at] for at in part)))
    return found


def _continues(lineage: Lineage, newer: Position | None, older: Position | None) -> bool:
    return newer is None or older is None or lineage.contains(newer, older)


NODE_EPOCH_MARGIN = 1_000
"""How many node epochs are skipped, because nodes whose directory is missing may have some."""

METADATA_OFFSET_MARGIN = 1_000_000
"""Metadata offsets skipped: a node stores a change of the nodes alone with the next one of a topic, and so may hold a
proof of a later position than its directory shows; that must not put the recovered store in doubt again."""

PRODUCER_ID_SHIFT = 40
"""No image holds producer ids; each recovery begins a range of 2**40 ids that no earlier reign reached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenNode:
    """What one node's data directory holds: its identity and the newest metadata it received."""

    node_id: NodeId
    directory_id: str
    image: MetadataImage | None
    """None if it was never sent metadata about a topic."""


def recover(given: Sequence[GivenNode], store: state.ClusterState | None = None) -> state.ClusterState:
    """The recovered state, from the nodes' stored images and, for what they lack, an older store.

    Raises:
        Refused: INVALID_REQUEST when nothing was given or two nodes are of different clusters.
    """
    images = [node.image for node in given if node.image is not None]
    # A store without a registered node was created by a start after the loss; it knows nothing.
    store = store if store and (store.nodes or store.removed_nodes) else None
    _check_given(given, images, store)
    reigns, last = (store.reigns, store.header.metadata_offset) if store else ({}, 0)
    lineage = Lineage(images, reigns, last)
    found = branches(images, lineage)
    directories = {node.node_id: node.directory_id for node in given}
    complete = {node.node_id for node in given if node.image is not None or _is_registered(node, store)}
    known = _nodes(images, directories, store)
    removed = still_removed(images, store)
    deleted = _deleted(found, lineage, store)
    # The branch with the highest numbers comes last, so that names and settings are its own.
    topics = {topic.topic_id: topic for branch in reversed(found) for topic in branch.head.topics}
    living = [topic for topic in topics.values() if topic.topic_id not in deleted]
    return state.ClusterState(
        header=_header(images, found[0].head, known, store),
        nodes={node_id: record for node_id, record in known.items() if node_id not in removed},
        removed_nodes=recovered_tombstones(removed, known, store),
        topics={topic.topic_id: _topic(topic, found, complete) for topic in living},
        deleted_topic_ids=frozenset(deleted),
        reigns=_closed(images, reigns),
        acls=next((one.head.acls for one in found if one.head.acls is not None), store.acls if store else ()),
        quotas=next((one.head.quotas for one in found if one.head.quotas is not None), store.quotas if store else ()),
    )


def _is_registered(node: GivenNode, store: state.ClusterState | None) -> bool:
    """Whether the store knows this directory; another directory may have replaced it and may have known more."""
    record = store.nodes.get(node.node_id) if store else None
    return record is not None and record.directory_id == node.directory_id


def _check_given(given: Sequence[GivenNode], images: Sequence[MetadataImage], store: state.ClusterState | None) -> None:
    if not images:
        why = "no given data directory holds metadata" if given else "no node's data directory was given"
        raise Refused(ErrorCode.INVALID_REQUEST, f"{why}; name at least one that does")
    clusters = {image.cluster_id for image in images} | ({store.header.cluster_id} if store else set())
    if len(clusters) > 1:
        raise Refused(ErrorCode.INVALID_REQUEST, f"the directories belong to different clusters: {sorted(clusters)}")
    if len({node.node_id for node in given}) < len(given):
        raise Refused(ErrorCode.INVALID_REQUEST, "two directories belong to the same node; give the one in use")


def _header(
    images: Sequence[MetadataImage],
    newest: MetadataImage,
    nodes: Mapping[NodeId, state.NodeRecord],
    store: state.ClusterState | None,
) -> state.ClusterHeader:
    old = store.header if store else state.ClusterHeader(cluster_id=newest.cluster_id)
    controller_epoch = max(old.controller_epoch, *(image.controller_epoch for image in images), 0) + 1
    highest_offset = max(old.metadata_offset, *(image.metadata_offset for image in images), 0)
    highest_node_epoch = max([old.next_node_epoch, *(record.image.node_epoch for record in nodes.values())])
    return state.ClusterHeader(
        cluster_id=newest.cluster_id,
        controller_epoch=controller_epoch,
        metadata_offset=highest_offset + METADATA_OFFSET_MARGIN,
        rules=newest.rules,
        feature_level=newest.feature_level,
        next_node_epoch=highest_node_epoch + NODE_EPOCH_MARGIN,
        # Kept if it is known: under another secret the proofs that nodes hold would be mere claims (M72).
        secret=old.secret,
        next_producer_id=max(old.next_producer_id, controller_epoch << PRODUCER_ID_SHIFT),
    )


def _nodes(
    images: Iterable[MetadataImage], directories: Mapping[NodeId, str], store: state.ClusterState | None
) -> dict[NodeId, state.NodeRecord]:
    latest: dict[NodeId, NodeImage] = {}
    # In the order of age, so that of two images of one incarnation the newer one stays.
    for image in sorted(images, key=lambda image: (image.controller_epoch, image.metadata_offset)):
        for node in image.nodes:
            known = latest.get(node.node_id)
            if known is None or node.node_epoch >= known.node_epoch:
                latest[node.node_id] = node
    # No node's latest incarnation is known until it registers again.
    records = {node_id: replace(old, incarnation_id="") for node_id, old in store.nodes.items()} if store else {}
    for node_id, node in latest.items():
        old = records.get(node_id)
        directory_id = directories.get(node_id) or (old.directory_id if old else "")
        records[node_id] = state.NodeRecord(image=node, incarnation_id="", directory_id=directory_id)
    return dict(sorted(records.items()))


def _topic(topic: TopicImage, found: Sequence[Branch], given: set[NodeId]) -> TopicImage:
    views: dict[TopicPartition, list[list[PartitionImage]]] = {}
    for branch in found:
        in_branch: dict[TopicPartition, list[PartitionImage]] = {}
        for image in branch.images:
            for partition in (p for t in image.topics if t.topic_id == topic.topic_id for p in t.partitions):
                in_branch.setdefault(partition.tp, []).append(partition)
        for tp, seen in in_branch.items():
            views.setdefault(tp, []).append(seen)
    partitions = tuple(_partition(views[tp], given) for tp in sorted(views, key=lambda tp: tp.partition))
    return replace(topic, partitions=partitions)


def _partition(views: Sequence[Sequence[PartitionImage]], given: set[NodeId]) -> PartitionImage:
    latest = [max(view, key=lambda partition: partition.partition_epoch) for view in views]
    highest = max(latest, key=lambda partition: partition.partition_epoch)
    if any(each != highest for each in latest):
        highest = _agreed(highest, latest)
    # Above what the lost end of a reign may have assigned, as at the first change in any reign (C37).
    restored = replace(
        highest,
        leader_epoch=LeaderEpoch(max(each.leader_epoch for view in views for each in view) + 1 + state.SKIP),
        partition_epoch=PartitionEpoch(highest.partition_epoch + 1 + state.SKIP),
    )
    if set(highest.replicas) <= given:
        return restored
    # An absent node may know a later ISR; only an operator may decide that it does not matter.
    return replace(restored, leader=None, isr=(), elr=(), unproven=())


def _agreed(highest: PartitionImage, latest: Sequence[PartitionImage]) -> PartitionImage:
    """What all branches agree on: a member of ISR or ELR in every branch has what any of them committed.

    Two branches may have had leaders of their own, so none of them leads on, and logs are compared first (M65).
    """
    replicas = set(highest.replicas)
    isr = in_assignment_order(highest, replicas.intersection(*(each.isr for each in latest)))
    complete = replicas.intersection(*({*each.isr, *each.elr} for each in latest))
    elr = in_assignment_order(highest, complete - set(isr)) if len(isr) < highest.min_isr else ()
    unclean = [each.last_unclean_leader_epoch for each in latest if each.last_unclean_leader_epoch is not None]
    return replace(
        highest,
        leader=None,
        isr=isr,
        elr=elr,
        unproven=in_assignment_order(highest, {*isr, *elr}),
        last_unclean_leader_epoch=max(unclean, default=None),
    )


def _deleted(found: Sequence[Branch], lineage: Lineage, store: state.ClusterState | None) -> set[str]:
    """Deleted topics: those that a branch had and no longer has, and those that only the store ever had.

    A topic that one branch never knew was created in another; it is kept.
    """
    gone = set(store.deleted_topic_ids) if store else set()
    stored = store.snapshot() if store else None
    for branch in found:
        before = [*branch.images, *([stored] if stored and _is_before(lineage, stored, branch.head) else [])]
        gone |= _ids(before) - _ids([branch.head])
    if stored is not None:
        gone |= _ids([stored]) - _ids([branch.head for branch in found])
    return gone


def _ids(images: Iterable[MetadataImage]) -> set[str]:
    return {topic.topic_id for image in images for topic in image.topics}


def _is_before(lineage: Lineage, older: MetadataImage, newer: MetadataImage) -> bool:
    if older.place is None or newer.place is None:
        return older.metadata_offset <= newer.metadata_offset
    return lineage.contains(newer.place, older.place)


def _closed(images: Sequence[MetadataImage], reigns: state.Reigns) -> dict[str, state.ReignRecord]:
    """The history of the recovered state: every reign ends where the given images know of it, or where it ended before.

    From here on a position beyond such an end shows what this recovery left out, and no longer a loss (C39).
    """
    records = dict(reigns)
    for image in images:
        for reign in image.reigns:
            named = state.ReignRecord(
                reign_id=reign.reign_id,
                controller_epoch=reign.controller_epoch,
                first_offset=reign.first_offset,
                previous_reign_id=reign.previous_reign_id,
            )
            records.setdefault(reign.reign_id, named)
    ends = _known_ends(images)
    for reign_id, record in records.items():
        known = ends.get(reign_id, record.first_offset - 1)
        last = known if record.last_offset is None else max(known, record.last_offset)
        records[reign_id] = replace(record, last_offset=last, recovered=True)
    return dict(sorted(records.items(), key=lambda item: (item[1].controller_epoch, item[1].first_offset)))


def _known_ends(images: Sequence[MetadataImage]) -> dict[str, int]:
    """The last offset of each reign that any image knows: its own, or the one before the next reign began."""
    ends: dict[str, int] = {}
    for image in images:
        for reign in image.reigns:
            if reign.previous_reign_id:
                ends[reign.previous_reign_id] = max(ends.get(reign.previous_reign_id, 0), reign.first_offset - 1)
        known = [position_sent(image)]
        if image.registered is not None:
            known.append(Position(image.registered.reign_id, image.registered.metadata_offset))
        for place in known:
            if place is not None:
                ends[place.reign_id] = max(ends.get(place.reign_id, 0), place.metadata_offset)
    return ends
