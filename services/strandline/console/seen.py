"""The data of the pages: one picture with its rows, findings and figures, computed once for all browsers.

Invariant: all parts of one page, and all pages of one version, show the same picture.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from strandline.console.findings import Finding, Tone, is_healthy, verdict, what_is_wrong
from strandline.console.groups import GroupRow, group_rows
from strandline.console.overview import MoveRow, PartitionRow, Rank, is_silent, move_rows, partition_rows
from strandline.console.picture import Picture
from strandline.core.messages import NodeImage, TopicImage
from strandline.v1.state_event_pb2 import StateEvent

MOST_AUDITED = 500
"""The most events that the audit page shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The counts on the landing page."""

    nodes: int
    nodes_serving: int
    partitions: int
    replicas: int
    out_of_sync: int
    offline: int
    under_min: int
    at_min: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """One node as the table of nodes shows it."""

    node: NodeImage
    state: str
    tone: str
    heartbeat_age_ms: int | None
    answer_age_ms: int | None
    failure: str
    leads: int
    replicas: int
    out_of_sync: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    """One topic: facts of its partitions, not what was asked for at its creation."""

    topic: TopicImage
    factors: tuple[int, ...]
    min_isrs: tuple[int, ...]
    in_sync: int
    replicas: int
    rank: Rank


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPicture:
    """A picture and everything that is derived from it."""

    version: int
    picture: Picture
    rows: tuple[PartitionRow, ...]
    findings: tuple[Finding, ...]

    @property
    def wrong(self) -> tuple[Finding, ...]:
        """The findings that are more than a note."""
        return tuple(finding for finding in self.findings if finding.tone is not Tone.NOTE)

    @property
    def notes(self) -> tuple[Finding, ...]:
        """The findings that are only notes."""
        return tuple(finding for finding in self.findings if finding.tone is Tone.NOTE)

    @property
    def tone(self) -> str:
        """The tone of the verdict: good, warn or bad."""
        if is_healthy(self.findings):
            return "good"
        return "bad" if any(finding.tone is Tone.BAD for finding in self.findings) else "warn"

    @property
    def verdict(self) -> str:
        """One line that sums up what is wrong."""
        return verdict(self.picture, self.findings)

    def figures(self) -> Figures:
        """The counts."""
        nodes = self.picture.nodes
        return Figures(
            nodes=len(nodes),
            nodes_serving=sum(not node.fenced for node in nodes),
            partitions=len(self.rows),
            replicas=sum(len(row.isr) + len(row.out) for row in self.rows),
            out_of_sync=sum(len(row.out) for row in self.rows),
            offline=sum(row.rank is Rank.OFFLINE for row in self.rows),
            under_min=sum(row.rank is Rank.UNDER_MIN_ISR for row in self.rows),
            at_min=sum(row.rank is Rank.AT_MIN_ISR for row in self.rows),
        )

    def nodes(self) -> tuple[NodeRow, ...]:
        """Every node, in order of id."""
        leads = Counter(row.leader for row in self.rows if row.leader is not None)
        holds = Counter(chip.node_id for row in self.rows for chip in row.chips)
        out = Counter(chip.node_id for row in self.rows for chip in row.out)
        nodes = sorted(self.picture.nodes, key=lambda node: node.node_id)
        return tuple(self._node(node, leads[node.node_id], holds[node.node_id], out[node.node_id]) for node in nodes)

    def _node(self, node: NodeImage, leads: int, replicas: int, out_of_sync: int) -> NodeRow:
        now_ms = self.picture.now_ms
        look = self.picture.looks.get(node.node_id)
        state, tone = _node_state(node, silent=is_silent(look, now_ms))
        return NodeRow(
            node=node,
            state=state,
            tone=tone,
            heartbeat_age_ms=self.picture.controller.heartbeat_age_ms.get(node.node_id),
            answer_age_ms=None if look is None or look.answered_ms is None else max(0, now_ms - look.answered_ms),
            failure=look.failure if look is not None else "",
            leads=leads,
            replicas=replicas,
            out_of_sync=out_of_sync,
        )

    def topics(self) -> tuple[TopicRow, ...]:
        """Every topic, by name."""
        by_topic: dict[str, list[PartitionRow]] = {}
        for row in self.rows:
            by_topic.setdefault(row.tp.topic_id, []).append(row)
        topics = sorted(self.picture.topics, key=lambda topic: topic.name)
        return tuple(_topic(topic, by_topic.get(topic.topic_id, [])) for topic in topics)

    def groups(self) -> tuple[GroupRow, ...]:
        """Every group, those that are not settled first."""
        return group_rows(self.picture, self.rows)

    def moves(self) -> tuple[MoveRow, ...]:
        """Every move that has not ended, those that run first."""
        return move_rows(self.picture, self.rows)

    def audit(self) -> list[tuple[str, StateEvent]]:
        """The changes and refusals that processes reported, each with its process, the newest first."""
        found = [(process, event) for process, look in self.picture.audits.items() for event in look.events]
        return sorted(found, key=lambda each: -each[1].ts_wall_us)[:MOST_AUDITED]

    def row(self, topic: str, index: int) -> PartitionRow | None:
        """The row of one partition; None if there is no such partition."""
        return next((row for row in self.rows if row.topic == topic and row.index == index), None)


def see(version: int, picture: Picture) -> SeenPicture:
    """Derive the data of the pages from a picture."""
    rows = partition_rows(picture)
    return SeenPicture(version=version, picture=picture, rows=rows, findings=what_is_wrong(picture, rows))


def _node_state(node: NodeImage, *, silent: bool) -> tuple[str, str]:
    if node.fenced:
        return "fenced", "bad"
    if silent:
        return "silent", "warn"
    if node.shutting_down:
        return "shutting down", "warn"
    if node.disk_nearly_full:
        return "disk nearly full", "bad"
    return ("observing" if node.is_observer else "serving"), "good"


def _topic(topic: TopicImage, rows: list[PartitionRow]) -> TopicRow:
    return TopicRow(
        topic=topic,
        factors=tuple(sorted({len(row.isr) + len(row.out) for row in rows})),
        min_isrs=tuple(sorted({row.min_isr for row in rows})),
        in_sync=sum(len(row.isr) for row in rows),
        replicas=sum(len(row.isr) + len(row.out) for row in rows),
        rank=min((row.rank for row in rows), default=Rank.WELL),
    )
