"""Words the output of a run: messages on the wire, changes of a node, answers to callers.

Invariant: stable output. A line depends on the protocol's state alone; a change of wording is a change of the
language, in which people write files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.core import messages
from strandline.core.errors import Outcome, Refusal
from strandline.core.log.effects import Emit
from strandline.core.log.node import NodeCore
from strandline.core.state_events import PartitionFailed, Truncation
from strandline_sim.scenario.nodes import TP, Names
from strandline_sim.scenario.transactions import records_in, shown_records


def number(value: int | None) -> str:
    """A number, or ``none``."""
    return "none" if value is None else str(value)


def fetch_text(part: messages.FetchPartition) -> str:
    """The text of a fetch."""
    words = [f"fetch offset={part.fetch_offset}"]
    if part.current_leader_epoch is not None:
        words.append(f"epoch={part.current_leader_epoch}")
    if part.last_fetched_epoch is not None:
        words.append(f"last-epoch={part.last_fetched_epoch}")
    return " ".join(words)


def fetched_text(answer: messages.FetchedPartition) -> str:
    """The text of the answer to a fetch."""
    if answer.error is not None:
        return f"fetched {answer.error.code.name}"
    if answer.diverging is not None:
        return f"fetched diverging epoch={answer.diverging.epoch} end={answer.diverging.end_offset}"
    payloads = answer.payload if isinstance(answer.payload, tuple) else ()
    records = [r for batch, payload in zip(answer.batches, payloads, strict=True) for r in records_in(batch, payload)]
    return f"fetched {shown_records(records)} hw={number(answer.high_watermark)}"


def epoch_question_text(question: messages.EpochEndQuestion) -> str:
    """The text of a question for the end of an epoch."""
    current = question.current_leader_epoch
    asker = "" if current is None else f" epoch={current}"
    return f"end-of-epoch {number(question.leader_epoch)}?{asker}"


def epoch_answer_text(answer: messages.EpochEndAnswer) -> str:
    """The text of an answer with the end of an epoch."""
    if answer.refusal is not None:
        return f"end-of-epoch {answer.refusal.code.name}"
    if answer.end is None:
        return "end-of-epoch unknown"
    return f"end-of-epoch {answer.end.epoch} is {answer.end.end_offset}"


def alter_text(request: messages.AlterPartitionRequest, names: Names) -> str:
    """The text of a leader's proposal to the controller."""
    (proposal,) = request.partitions
    members = names.shown(member.node_id for member in proposal.new_isr)
    return (
        f"alter isr={members} epoch={proposal.leader_epoch} version={proposal.partition_epoch} "
        f"attempt={request.request_sequence}"
    )


def altered_text(answer: messages.AlterPartitionAnswer, names: Names) -> str:
    """The text of the controller's answer to a proposal."""
    refusal = answer.refusal or (answer.partitions[0].refusal if answer.partitions else None)
    if refusal is not None:
        return f"altered {refusal.code.name}"
    (decision,) = answer.partitions
    return f"altered isr={names.shown(decision.isr)} version={decision.partition_epoch}"


def metadata_text(image: messages.MetadataImage, names: Names) -> str:
    """The text of metadata about the partition and the nodes it names."""
    words = ["metadata"]
    partition = partition_in(image)
    if partition is not None:
        words.append(partition_text(partition, names))
    if not image.is_snapshot:
        words += [f"{names.name(n.node_id)}={_node_state(n.fenced, n.shutting_down)}" for n in image.nodes]
    return " ".join(words)


def _node_state(fenced: bool, shutting_down: bool) -> str:
    return "fenced" if fenced else "leaving" if shutting_down else "active"


def partition_text(partition: messages.PartitionImage, names: Names) -> str:
    """A partition as the controller committed it."""
    words = [f"leader={names.name(partition.leader)} epoch={partition.leader_epoch} isr={names.shown(partition.isr)}"]
    if partition.elr:
        words.append(f"elr={names.shown(partition.elr)}")
    if partition.unproven:
        words.append(f"unproven={names.shown(partition.unproven)}")
    words += [
        f"{name}={names.shown(members)}"
        for name, members in (
            ("adding", partition.adding),
            ("removing", partition.removing),
            ("queued", partition.queued_target),
        )
        if members
    ]
    if partition.throttle_bytes_per_s is not None:
        words.append(f"throttle={partition.throttle_bytes_per_s}")
    return " ".join([*words, f"version={partition.partition_epoch}"])


def report_text(info: messages.ReplicaLogInfo) -> str:
    """The text of a node's report to the controller about its log."""
    words = [f"reports leo {info.leo}, epoch {info.leader_epoch}, reconciled {number(info.reconciled_epoch)}"]
    if info.refused_cut_to is not None:
        words.append(f"refuses to cut to {info.refused_cut_to} below hw {info.high_watermark}")
    return ", ".join(words)


def partition_in(image: messages.MetadataImage) -> messages.PartitionImage | None:
    """The scenario's partition in an image, if it has one."""
    return next((p for topic in image.topics for p in topic.partitions if p.tp == TP), None)


def produced_text(result: messages.ProduceResult) -> str:
    """How a produce ended."""
    if result.refusal is None:
        return "acked" if result.base_offset is None else f"acked at {result.base_offset}"
    certain = "not appended" if result.refusal.outcome is Outcome.NOT_APPENDED else "may appear"
    return f"refused {result.refusal.code.name} ({certain})"


def deleted_text(answer: messages.DeletedPartition) -> str:
    """How a deletion ended."""
    ended = "complete" if answer.refusal is None else refused_text(answer.refusal)
    return ended if answer.low_watermark is None else f"{ended}, low watermark {answer.low_watermark}"


def refused_text(refusal: Refusal) -> str:
    """A refusal by its name."""
    return f"refused {refusal.code.name}"


@dataclass(frozen=True, slots=True)
class Sight:
    """The visible state of one node's replica. ``role`` is empty while it has none."""

    role: str = ""
    epoch: int | None = None
    leader: int | None = None
    state: str = ""
    log_start: int = 0
    leo: int = 0
    hw: int = 0
    isr: tuple[int, ...] = ()
    maximal: tuple[int, ...] = ()
    remote: Mapping[int, int | None] | None = None


def sight_of(core: NodeCore | None) -> Sight:
    """The current sight of a node."""
    if core is None:
        return Sight()
    leader, follower = core.state.leaders.get(TP), core.state.followers.get(TP)
    if leader is not None:
        log = leader.log
        return Sight(
            "leads", leader.image.leader_epoch, core.state.node_id, "", log.log_start_offset, log.leo, log.hw,
            leader.isr.committed, tuple(n for n in leader.image.replicas if n in leader.isr.maximal),
            {node_id: progress.remote_leo for node_id, progress in leader.progress.items()},
        )  # fmt: skip
    if follower is not None:
        log = follower.log
        return Sight(
            "follows",
            follower.leader_epoch,
            follower.leader,
            str(follower.state),
            log.log_start_offset,
            log.leo,
            log.hw,
        )
    return Sight()


def change_text(before: Sight, after: Sight, names: Names) -> str:
    """The visible changes of a node, in one line; empty if there are none."""
    if (before.role, before.epoch, before.leader) != (after.role, after.epoch, after.leader):
        return _new_role(after, names)
    moved = [
        _moved("log start", before.log_start, after.log_start),
        _moved("leo", before.leo, after.leo),
        *_remote_moves(before, after, names),
        _moved("hw", before.hw, after.hw),
        _moved("isr", names.shown(before.isr), names.shown(after.isr)),
        _counted(before, after, names),
        _moved("", before.state, after.state),
    ]
    return ", ".join(words for words in moved if words)


def _new_role(after: Sight, names: Names) -> str:
    where = f"leo {after.leo}, hw {after.hw}"
    if after.role == "leads":
        return f"leads epoch {after.epoch} ({where}, isr {names.shown(after.isr)})"
    if after.role == "follows" and after.leader is not None:
        return f"follows {names.name(after.leader)} in epoch {after.epoch} ({where}, {after.state})"
    return f"has no leader in epoch {after.epoch} ({where})" if after.role else "holds no replica"


def _moved(what: str, before: object, after: object) -> str:
    return "" if before == after else f"{what} {before}->{after}".strip()


def _remote_moves(before: Sight, after: Sight, names: Names) -> list[str]:
    old, new = before.remote or {}, after.remote or {}
    return [
        f"remote {names.name(n)} {number(old.get(n))}->{number(leo)}" for n, leo in new.items() if old.get(n) != leo
    ]


def _counted(before: Sight, after: Sight, names: Names) -> str:
    """The maximal ISR, printed when it differs from the committed one, and when it no longer does."""
    if after.maximal == before.maximal or (after.isr != before.isr and set(after.maximal) == set(after.isr)):
        return ""
    return f"counts {names.shown(after.maximal)}"


def emitted_text(emit: Emit) -> str:
    """The line for a reported decision that no change of numbers shows; empty for all others."""
    match emit.event:
        case Truncation(from_leo=before, to_leo=after, committed_cut=cut, reason=reason):
            return f"truncates {before}->{after} ({reason}{f', {cut} below its hw' if cut else ''})"
        case PartitionFailed(reason=reason):
            return f"failed: {reason}"
    return ""
