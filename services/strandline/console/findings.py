"""Finds what is wrong now, and words it together with a remedy.

Pure: a `Picture` and its rows in, findings out, worst first. Invariant: a healthy cluster has none; what is merely
worth knowing is a note and leaves the cluster healthy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from strandline.console.overview import PartitionRow, Rank, is_silent
from strandline.console.picture import Picture
from strandline.core.types import NodeId
from strandline.units import age_text, count_of, listed

CONTROLLER_SILENT_AFTER_MS = 6_000
"""Three missed signs of life at the default heartbeat interval; a failed request shows it earlier."""


class Tone(StrEnum):
    """How bad a finding is; also the CSS class for its colour."""

    BAD = "bad"
    WARN = "warn"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong.

    ``short`` goes into the verdict; ``show`` is the value of the partition table's filter that lists all of it.
    """

    kind: str
    tone: Tone
    short: str
    sentence: str
    remedy: str
    show: str = ""
    partitions: tuple[PartitionRow, ...] = ()
    nodes: tuple[NodeId, ...] = ()


def what_is_wrong(picture: Picture, rows: Sequence[PartitionRow]) -> tuple[Finding, ...]:
    """Every finding, the worst first, notes last."""
    found = [
        *_controller(picture),
        *_offline(rows),
        *_under_min(rows),
        *_recovering(rows),
        *_fenced(picture),
        *_filled(picture),
        *_silent(picture),
        *_failed(rows),
        *_at_min(rows),
        *_out_of_sync(rows),
        *_leaving(picture),
        *_moving(picture),
        *_not_preferred(rows),
    ]
    order = list(Tone)
    return tuple(sorted(found, key=lambda finding: order.index(finding.tone)))


def is_healthy(findings: Sequence[Finding]) -> bool:
    """Whether there are no findings other than notes."""
    return all(finding.tone is Tone.NOTE for finding in findings)


def verdict(picture: Picture, findings: Sequence[Finding]) -> str:
    """One line that sums up what is wrong."""
    wrong = [finding.short for finding in findings if finding.tone is not Tone.NOTE]
    if picture.image is None:
        return "Nothing is known yet: no controller has answered"
    if not wrong:
        return "Nothing is wrong"
    said = "; ".join(wrong)
    return said[0].upper() + said[1:]


def _controller(picture: Picture) -> Iterator[Finding]:
    look, age_ms = picture.controller, picture.age_ms
    silent = age_ms is not None and age_ms >= CONTROLLER_SILENT_AFTER_MS
    if picture.image is not None and not look.failure and not silent:
        return
    if picture.image is None:
        old = f"No controller has answered at {picture.bootstrap} yet"
    else:
        old = f"The controller does not answer; who leads and who is in sync was heard {age_text(age_ms)} ago"
    yield Finding(
        kind="controller",
        tone=Tone.BAD,
        short="the controller does not answer",
        sentence=f"{old}{f' ({look.failure})' if look.failure else ''}.",
        remedy="Start the controller, or look at its output. Leaders go on serving meanwhile; no leader and no ISR "
        "can change until it is back.",
    )


def _of_partitions(
    found: Iterable[PartitionRow], kind: str, tone: Tone, short: str, sentence: str, remedy: str
) -> Iterator[Finding]:
    """The finding about these partitions, if there are any; ``kind`` is also the filter that lists them."""
    partitions = tuple(found)
    if partitions:
        count = count_of(partitions, "partition")
        yield Finding(
            kind=kind,
            tone=tone,
            short=f"{count} {short}",
            sentence=f"{count} {sentence}",
            remedy=remedy,
            show=kind,
            partitions=partitions,
        )


def _offline(rows: Sequence[PartitionRow]) -> Iterator[Finding]:
    found = [row for row in rows if row.rank is Rank.OFFLINE]
    wanted = sorted({node_id for row in found for node_id in (*row.isr, *row.elr)})
    said = "without a leader: nothing can be written or read there."
    remedy = "No replica is eligible: start their nodes, then see about an unclean election."
    if wanted:
        remedy = f"Start a node of their ISR or ELR: {listed(f'node {node_id}' for node_id in wanted)}."
    return _of_partitions(found, "offline", Tone.BAD, "offline", said, remedy)


def _under_min(rows: Sequence[PartitionRow]) -> Iterator[Finding]:
    found = (row for row in rows if row.rank is Rank.UNDER_MIN_ISR)
    said = "under min ISR: writes with acks=all are refused, and the HW stands still."
    remedy = "Bring a replica that is out back into the ISR; they are listed below."
    return _of_partitions(found, "under-min", Tone.BAD, "under min ISR", said, remedy)


def _recovering(rows: Sequence[PartitionRow]) -> Iterator[Finding]:
    found = (row for row in rows if row.rank is Rank.RECOVERING)
    said = "elected unclean and not recovered: committed records may be missing."
    remedy = "The analytics report counts what was cut."
    return _of_partitions(found, "recovering", Tone.BAD, "elected unclean", said, remedy)


def _fenced(picture: Picture) -> Iterator[Finding]:
    found = tuple(sorted(node.node_id for node in picture.nodes if node.fenced))
    if found:
        many = len(found) > 1
        yield Finding(
            kind="fenced",
            tone=Tone.BAD,
            short=f"{_nodes_text(found)} fenced",
            sentence=f"{_nodes_text(found).capitalize()} {'are' if many else 'is'} fenced: no heartbeats reach the "
            f"controller, so {'they lead' if many else 'it leads'} nothing and no new write waits for "
            f"{'them' if many else 'it'}.",
            remedy="Start the process, or look at its output and at its way to the controller. If the machine is gone, "
            "start a node with the same id and an empty directory on any machine: it copies everything.",
            nodes=found,
        )


def _filled(picture: Picture) -> Iterator[Finding]:
    found = tuple(sorted(node.node_id for node in picture.nodes if node.disk_nearly_full and not node.fenced))
    if found:
        yield Finding(
            kind="disk",
            tone=Tone.BAD,
            short=f"the disk of {_nodes_text(found)} nearly full",
            sentence=f"The disk of {_nodes_text(found)} is nearly full: partitions led there take no writes. "
            "Leadership moves to members of the ISR that have room.",
            remedy="Free space, lower retention of the largest topics, or enlarge the volume.",
            nodes=found,
        )


def _silent(picture: Picture) -> Iterator[Finding]:
    fenced = {node.node_id for node in picture.nodes if node.fenced}
    found = tuple(
        sorted(
            node_id
            for node_id, look in picture.looks.items()
            if node_id not in fenced and is_silent(look, picture.now_ms)
        )
    )
    if found:
        failures = sorted({picture.looks[node_id].failure for node_id in found})
        yield Finding(
            kind="silent",
            tone=Tone.WARN,
            short=f"{_nodes_text(found)} silent",
            sentence=f"{_nodes_text(found).capitalize()} {'do' if len(found) > 1 else 'does'} not answer the console, "
            f"while the controller has not fenced {'them' if len(found) > 1 else 'it'} ({listed(failures)}).",
            remedy="The process stands still, or the console cannot reach its client address. Figures of what it "
            "leads are old.",
            nodes=found,
        )


def _failed(rows: Sequence[PartitionRow]) -> Iterator[Finding]:
    failed = [(row, chip) for row in rows for chip in row.chips if chip.reason]
    if failed:
        row, chip = failed[0]
        yield Finding(
            kind="failed",
            tone=Tone.BAD,
            short=f"{count_of(failed, 'replica')} failed",
            sentence=f"{count_of(failed, 'replica')} given up by {'their' if len(failed) > 1 else 'its'} own node "
            f"until the next leader epoch; node {chip.node_id} says of {row.name}: {chip.reason}",
            remedy="Read that node's output; a new leader epoch makes it try again.",
            show="out-of-sync",
            partitions=tuple(row for row, _ in failed),
        )


def _at_min(rows: Sequence[PartitionRow]) -> Iterator[Finding]:
    found = (row for row in rows if row.rank is Rank.AT_MIN_ISR)
    said = "at min ISR: with one in-sync replica less, acks=all is refused."
    remedy = "Do not restart another node until the replicas below are back."
    return _of_partitions(found, "at-min", Tone.WARN, "at min ISR", said, remedy)


def _out_of_sync(rows: Sequence[PartitionRow]) -> Iterator[Finding]:
    found = tuple(sorted((row for row in rows if row.out), key=lambda row: (row.rank, row.topic, row.index)))
    if found:
        out = [chip for row in found for chip in row.out]
        nodes = tuple(sorted({chip.node_id for chip in out}))
        yield Finding(
            kind="out-of-sync",
            tone=Tone.WARN,
            short=f"{count_of(out, 'replica')} out of sync",
            sentence=f"{count_of(out, 'replica')} in {count_of(found, 'partition')} out of sync, on "
            f"{_nodes_text(nodes)}: a leader that dies now has fewer to follow it.",
            remedy="Joining replicas come back by themselves; for the others start or repair their node.",
            show="out-of-sync",
            partitions=found,
            nodes=nodes,
        )


def _leaving(picture: Picture) -> Iterator[Finding]:
    found = tuple(sorted(node.node_id for node in picture.nodes if node.shutting_down and not node.fenced))
    if found:
        yield Finding(
            kind="leaving",
            tone=Tone.NOTE,
            short=f"{_nodes_text(found)} shutting down",
            sentence=f"{_nodes_text(found).capitalize()} in controlled shutdown: leadership moves away first.",
            remedy="",
            nodes=found,
        )


def _moving(picture: Picture) -> Iterator[Finding]:
    partitions = [each for topic in picture.topics for each in topic.partitions]
    running = [each for each in partitions if each.original]
    queued = [each for each in partitions if each.queued_target and not each.original]
    if running or queued:
        yield Finding(
            kind="moves",
            tone=Tone.NOTE,
            short=f"{count_of(running, 'move')} running",
            sentence=f"{count_of(running, 'move')} running, {len(queued):,} queued: the replicas that they add do not "
            "count as out of sync.",
            remedy="The page of moves shows how far they are.",
        )


def _not_preferred(rows: Sequence[PartitionRow]) -> Iterator[Finding]:
    found = (row for row in rows if row.leader is not None and not row.is_preferred)
    said = "led by another replica than the preferred one."
    remedy = "The controller moves leadership back by itself once the preferred replica is in sync."
    return _of_partitions(found, "not-preferred", Tone.NOTE, "not led by the preferred replica", said, remedy)


def _nodes_text(node_ids: Sequence[NodeId]) -> str:
    return f"node{'s' if len(node_ids) != 1 else ''} {listed(str(node_id) for node_id in node_ids)}"
