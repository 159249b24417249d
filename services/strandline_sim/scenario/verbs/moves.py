"""The verbs of reassignments and drained nodes, and what a scenario claims of them."""

from __future__ import annotations

from strandline.core.control.messages import (
    AlterPartitionReassignments,
    DrainNode,
    NodeDrained,
    PartitionsReassigned,
    ReassignPartition,
    TopicRef,
)
from strandline.core.messages import PartitionImage
from strandline_sim.scenario.call import Verb, VerbCall
from strandline_sim.scenario.control import CLUSTER_ID
from strandline_sim.scenario.language import Misuse
from strandline_sim.scenario.nodes import TP
from strandline_sim.scenario.verbs.controllers import deciding


def reassign(call: VerbCall) -> None:
    """`reassign`: give the partition other replicas, the preferred leader first; ``throttle``: in bytes per second."""
    if "replicas" not in call.options:
        raise call.wrong(None, "replicas=, in order of preference")
    call.no_more(0)
    target = tuple(actor.node_id for actor in call.nodes(call.options["replicas"]))
    wanted = ReassignPartition(TopicRef(topic_id=TP.topic_id), TP.partition, target)
    _ask(call, wanted, rate=call.maybe_integer("throttle"))


def cancel_reassignment(call: VerbCall) -> None:
    """`cancel-reassignment`: return to the original replicas; ``force``: also below min ISR."""
    force = bool(call.words)
    if force and call.words[0].text != "force":
        raise call.wrong(call.words[0], "force, or nothing more")
    call.no_more(1)
    _ask(call, ReassignPartition(TopicRef(topic_id=TP.topic_id), TP.partition, None), force=force)


def _ask(call: VerbCall, wanted: ReassignPartition, *, force: bool = False, rate: int | None = None) -> None:
    deciding(call)
    request = AlterPartitionReassignments(
        cluster_id=CLUSTER_ID, partitions=(wanted,), force=force, throttle_bytes_per_s=rate
    )
    answer = call.stage.control.ask(request, PartitionsReassigned)
    refusal = answer.refusal or answer.results[0].refusal
    call.stage.clients.note(call.command.words[0].text, refusal.code.name if refusal else "done", refusal)


def drain(call: VerbCall) -> None:
    """`drain`: drain a node; ``off`` ends that."""
    deciding(call)
    actor = call.node(call.word(0, "a node"))
    off = len(call.words) > 1
    if off and call.words[1].text != "off":
        raise call.wrong(call.words[1], "off, or nothing more")
    call.no_more(2)
    request = DrainNode(cluster_id=CLUSTER_ID, node_id=actor.node_id, draining=not off)
    refusal = call.stage.control.ask(request, NodeDrained).refusal
    call.stage.clients.note("drain", refusal.code.name if refusal else "done", refusal)


def _partition(call: VerbCall) -> PartitionImage:
    partition = call.stage.control.partition()
    if partition is None:
        raise call.wrong(call.command.words[0], "`topic` before this")
    return partition


def expect_reassigning(call: VerbCall) -> None:
    """`expect-reassigning`: what a reassignment adds, removes, and waits to become; what is not named is nothing."""
    call.no_more(0)
    partition = _partition(call)
    found = {"adding": partition.adding, "removing": partition.removing, "queued": partition.queued_target}
    for name, members in found.items():
        wanted = call.text_option(name, "none")
        if wanted != (shown := call.stage.names.shown(members)):
            raise Misuse(call.command.words[0].column, f"{name} is {wanted}", f"{name} is {shown}")


def expect_min_isr(call: VerbCall) -> None:
    """`expect-min-isr`: the effective min ISR at the controller."""
    word = call.word(0, "a number")
    call.no_more(1)
    if call.integer(word) != (found := _partition(call).min_isr):
        raise Misuse(word.column, f"the effective min ISR is {word.text}", f"it is {found}")


VERBS = (
    Verb("reassign", reassign, ("replicas", "throttle")),
    Verb("cancel-reassignment", cancel_reassignment),
    Verb("drain", drain),
    Verb("expect-reassigning", expect_reassigning, ("adding", "removing", "queued")),
    Verb("expect-min-isr", expect_min_isr),
)
