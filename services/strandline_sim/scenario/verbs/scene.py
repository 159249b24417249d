"""The verbs that set the scene: set, controller, nodes, preload, topic."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from strandline.core.control.messages import CreateTopics, NewTopic, TopicsCreated
from strandline.core.control.state import ControllerTimings
from strandline.core.log.effects import Append
from strandline.core.log.saving_order import NodeTimings
from strandline.core.types import Durability, FetchHw, IsrJoin, LeaderEpoch, Offset, Truncation
from strandline_sim.scenario.board import CONTROLLER, Envelope, Link
from strandline_sim.scenario.call import Verb, VerbCall
from strandline_sim.scenario.control import CLUSTER_ID
from strandline_sim.scenario.language import Word
from strandline_sim.scenario.nodes import TP, Actor
from strandline_sim.scenario.telling import partition_text
from strandline_sim.scenario.transactions import header, in_batches

_RULES = {"truncation": Truncation, "fetch-hw": FetchHw, "isr-join": IsrJoin, "durability": Durability}
_TIMINGS = {field.name.replace("_", "-"): field.name for field in fields(NodeTimings)}
_MOST_EPOCHS = 10_000
"""Each of them is an election by the controller."""
_BYTES = ("bytes", "entries", "limit")


def set_rules(call: VerbCall) -> None:
    """`set`: rules of the cluster, and durations or bounds of its nodes."""
    for key, value in call.pairs("a setting and its value, such as truncation=fetch"):
        if key.text in _RULES:
            _set_rule(call, key, value)
        elif key.text in _TIMINGS:
            call.stage.timings = _with_timing(call, call.stage.timings, key, value)
        else:
            raise call.wrong(key, f"one of {', '.join([*_RULES, *_TIMINGS])}")


def _set_rule(call: VerbCall, key: Word, value: Word) -> None:
    stage = call.stage
    if stage.actors:
        raise call.wrong(key, "a rule before the first `nodes`: rules are chosen when a cluster begins")
    changed: dict[str, Any] = {key.text.replace("-", "_"): call.choice(value, _RULES[key.text])}
    stage.rules = replace(stage.rules, **changed)


def _with_timing(call: VerbCall, timings: NodeTimings, key: Word, value: Word) -> NodeTimings:
    found = call.integer(value) if key.text.endswith(_BYTES) else call.duration_ms(value)
    try:
        return replace(timings, **{_TIMINGS[key.text]: found})
    except ValueError as error:
        raise call.wrong(value, str(error)) from error


def controller(call: VerbCall) -> None:
    """`controller`: its timings, before it starts; it starts by itself with the first `nodes`."""
    call.no_more(0)
    if call.stage.control.core is not None:
        raise call.wrong(call.command.words[0], "`controller` before the first `nodes`")
    defaults = ControllerTimings(auto_leader_rebalance=False)
    call.stage.controller_timings = replace(
        defaults,
        session_timeout_ms=call.duration_option("session-timeout", defaults.session_timeout_ms),
        heartbeat_interval_ms=call.duration_option("heartbeat-interval", defaults.heartbeat_interval_ms),
        auto_leader_rebalance=call.text_option("rebalance", "off", ("on", "off")) == "on",
        leader_imbalance_check_interval_ms=call.duration_option(
            "rebalance-interval", defaults.leader_imbalance_check_interval_ms
        ),
    )


def nodes(call: VerbCall) -> None:
    """`nodes`: name nodes; each registers, is unfenced and hears the metadata. Prints nothing."""
    stage = call.stage
    call.word(0, "the name of a node")
    timings = stage.timings
    if "fetch-max-bytes" in call.options:
        timings = replace(timings, replica_fetch_max_bytes=call.integer(call.options["fetch-max-bytes"]))
    if stage.control.core is None:
        stage.control.start()
    stage.tells_messages = False
    for word in call.words:
        if not word.text.replace("-", "").replace("_", "").isalnum() or word.text in (CONTROLLER, "none"):
            raise call.wrong(word, "a name of letters and digits, not ctl and not none")
        if word.text in stage.actors:
            raise call.wrong(word, "a new name")
        actor = stage.add(word.text, timings, observer=call.text_option("role", "replica", ROLES) == "observer")
        stage.start(actor)
        stage.control.beat(actor)
    stage.settle()
    stage.lines[:] = [line for line in stage.lines if line.startswith("!!")]


ROLES = ("replica", "observer")


def topic(call: VerbCall) -> None:
    """`topic`: the one topic with its one partition. Every node receives it, or those that `sent-to` names."""
    stage = call.stage
    name = call.word(0, "the topic's name")
    if stage.control.partition() is not None:
        raise call.wrong(name, "only one `topic`: a scenario is about one partition")
    if "replicas" not in call.options:
        raise call.wrong(None, "replicas=, in order of preference")
    replicas = call.nodes(call.options["replicas"])
    receivers = call.nodes(call.options["sent-to"]) if "sent-to" in call.options else list(stage.actors.values())
    stage.tells_messages = False
    _create(call, name, replicas)
    _age(call, replicas)
    partition = stage.control.partition()
    assert partition is not None
    stage.lines[:] = [f"{CONTROLLER}: {partition_text(partition, stage.names)}"]
    for actor in stage.actors.values():
        newest = _newest_only(call, actor)
        if newest is not None and actor in receivers:
            stage.deliver(newest)
    stage.tells_messages = True


def _create(call: VerbCall, name: Word, replicas: list[Actor]) -> None:
    configs = [("min.insync.replicas", str(call.integer_option("min-isr", 1)))]
    if call.text_option("unclean", "off", ("on", "off")) == "on":
        configs.append(("unclean.leader.election.enable", "true"))
    new = NewTopic(
        name.text, TP.topic_id, assignments=((0, tuple(actor.node_id for actor in replicas)),), configs=tuple(configs)
    )
    answer = call.stage.control.ask(CreateTopics(cluster_id=CLUSTER_ID, topics=(new,)), TopicsCreated)
    refusal = answer.topics[0].refusal
    if refusal is not None:
        raise call.wrong(name, "a topic the controller accepts", str(refusal))


def _age(call: VerbCall, replicas: list[Actor]) -> None:
    """Bring a new partition to the epoch and the ISR with which the story begins."""
    control = call.stage.control
    epoch = call.integer_option("epoch", 0)
    if epoch > _MOST_EPOCHS:
        raise call.wrong(call.options["epoch"], f"an epoch of {_MOST_EPOCHS:,} at most")
    for _ in range(epoch):
        control.perform(control.serving.place_leader(TP, replicas[0].node_id, unclean=False))
    if "isr" in call.options or "elr" in call.options:
        isr = call.nodes(call.options["isr"]) if "isr" in call.options else replicas
        elr = call.nodes(call.options["elr"]) if "elr" in call.options else []
        ids, waiting = tuple(actor.node_id for actor in isr), tuple(actor.node_id for actor in elr)
        control.perform(control.serving.put_isr(TP, ids, waiting))


def _newest_only(call: VerbCall, actor: Actor) -> Envelope | None:
    """The newest metadata for a node; older ones, of a time before the story, are let go of."""
    stage = call.stage
    found = [e for e in stage.wire.waiting() if e.link == Link(CONTROLLER, actor.name)]
    for envelope in found[:-1]:
        stage.wire.take(envelope)
    return found[-1] if found else None


def preload(call: VerbCall) -> None:
    """`preload`: what lies on a node's disk before it hears of the topic: ``e0x2`` is two records of epoch 0."""
    stage = call.stage
    actor = call.node(call.word(0, "a node"))
    if stage.control.partition() is not None:
        raise call.wrong(call.words[0], "`preload` before `topic`")
    log = actor.log
    start = call.integer_option("start", 0)
    if start:
        log.restart(start, 0)
    for word in call.words[1:]:
        epoch, values = _span(call, word, log.leo)
        for batch_values in in_batches(values, call.positive_option("batch", 1)):
            batch = header(count=len(batch_values), size_bytes=call.integer_option("size", RECORD_BYTES))
            actor.logs.append(Append(TP, Offset(log.leo), LeaderEpoch(epoch), batch, batch_values))
    log.hw_cached = log.hw_durable = min(call.integer_option("hw", 0), log.leo)
    log.recover()


RECORD_BYTES = 100
"""Size of a batch of one record, unless ``size=`` says otherwise."""


def _span(call: VerbCall, word: Word, offset: int) -> tuple[int, list[str]]:
    """``e3x5``: five records of epoch 3, named after their offsets; ``m7@3``: the record m7 of epoch 3."""
    if word.text.startswith("e") and "x" in word.text:
        epoch, _, count = word.text[1:].partition("x")
        if epoch.isdecimal() and count.isdecimal() and len(count) <= 12:
            return int(epoch), call.expanded(word, f"r{offset}..r{offset + int(count) - 1}") if int(count) else []
    value, at, epoch = word.text.rpartition("@")
    if at and epoch.isdecimal() and value:
        return int(epoch), call.expanded(word, value)
    raise call.wrong(word, "records such as e0x2 (two of epoch 0) or m1@0")


VERBS = (
    Verb("set", set_rules),
    Verb("controller", controller, ("session-timeout", "heartbeat-interval", "rebalance", "rebalance-interval")),
    Verb("nodes", nodes, ("role", "fetch-max-bytes")),
    Verb("preload", preload, ("hw", "start", "size", "batch")),
    Verb("topic", topic, ("replicas", "min-isr", "isr", "elr", "epoch", "sent-to", "unclean")),
)
