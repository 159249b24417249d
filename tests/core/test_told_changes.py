"""The audit of refusals and changes, by the controller's core and by the code that merges refusals."""

from __future__ import annotations

from typing import Any

from controller_builders import TOPIC, TOPIC_ID, Controller

from strandline.core.audit import MOST_KINDS, MergedRefusals
from strandline.core.control import events, messages
from strandline.core.log.effects import Emit
from strandline.core.permissions import (
    CLUSTER_NAME,
    LONGEST_NAME,
    Caller,
    Operation,
    Pattern,
    Permission,
    ResourceType,
    Rule,
    audit_of,
)
from strandline.core.state_events import Audit
from strandline.core.types import NodeId

OPS = Caller("admin/ops", None, "/strandline.v1.ControllerService/Any", "ipv4:10.0.0.2:51004")


def _refusal(name: str, method: str = "Any", rule: str | None = None) -> Audit:
    return audit_of(OPS._replace(method=method), ResourceType.TOPIC, name, "REFUSED", rule)


def test_refusals_of_one_kind_are_one_event() -> None:
    """Principal, method and rule make a kind; the first names what was refused, and the number is theirs together."""
    merged = MergedRefusals()
    for refusal in (_refusal("a"), _refusal("b"), _refusal("b", rule="role"), _refusal("c")._replace(n_coalesced=5)):
        merged.take(refusal)
    found = merged.drain()

    assert [(each.resource_name, each.rule, each.n_coalesced) for each in found] == [("a", None, 7), ("b", "role", 1)]
    assert merged.drain() == []


def test_kinds_beyond_the_bound_are_counted_together() -> None:
    """A flood of different kinds holds as many events as the bound and one more, and none is lost."""
    merged = MergedRefusals()
    for number in range(10 * MOST_KINDS):
        merged.take(_refusal("t", method=f"M{number}"))
    found = merged.drain()

    assert len(found) == MOST_KINDS + 1
    assert sum(each.n_coalesced for each in found) == 10 * MOST_KINDS
    assert [(each.principal, each.resource_name, each.n_coalesced) for each in found if each.method is None] == [
        (None, None, 9 * MOST_KINDS)
    ]


def test_what_a_caller_chose_is_cut_and_printable() -> None:
    """A name that is refused takes no more room than one that could be granted, and moves no terminal's cursor."""
    recorded = _refusal("\x1b[2J" + "a" * 10_000)

    assert recorded.resource_name == "?[2J" + "a" * (LONGEST_NAME - 4)


def _told(controller: Controller, request: Any, caller: Caller | None = OPS) -> list[Audit]:
    """The audit of a request; a change is recorded behind its commit."""
    effects = controller.step(events.RequestArrived(controller.now_ms, 1, request, caller))
    recorded = [each.event for each in effects if isinstance(each, Emit) and isinstance(each.event, Audit)]
    assert not recorded or recorded[0].outcome == "REFUSED" or isinstance(effects[0], events.Commit)
    return recorded


def test_what_changed_nothing_is_not_recorded() -> None:
    """A check, a repeat and what nodes ask leave no event; the change itself is recorded with its metadata offset."""
    controller = Controller()
    controller.start(1, 2)
    new = messages.NewTopic(TOPIC, "11111111-0000-4000-8000-000000000000", 1, 2, configs=(("retention.ms", "60000"),))
    checked = _told(controller, messages.CreateTopics(topics=(new,), validate_only=True))
    (made,) = _told(controller, messages.CreateTopics(topics=(new,)))
    again = _told(controller, messages.CreateTopics(topics=(new,)))
    by_node = _told(controller, messages.ShutdownNode(node_id=NodeId(2)), None)

    assert controller.node(2).shutting_down
    assert checked == again == by_node == []
    assert (made.before, made.after) == ({}, {"partitions": "1", "replication.factor": "2", "retention.ms": "60000"})
    assert (made.principal, made.peer, made.method, made.rule) == (
        "admin/ops", "ipv4:10.0.0.2:51004", "ControllerService/Any", "role"
    )  # fmt: skip
    assert made.meta_offset == controller.core.state.header.metadata_offset - 1


def test_a_repeated_creation_is_no_refusal_to_a_caller_with_a_rule_on_the_cluster_alone() -> None:
    """The repeat is answered with the topic that it has made, and nothing says that the caller may not see it (C32)."""
    controller = Controller()
    controller.start(1)
    allows = Rule("client/x", Permission.ALLOW, Operation.CREATE, ResourceType.CLUSTER, Pattern.LITERAL, CLUSTER_NAME)
    controller.ask(messages.AlterAcls(entries=(allows,)))
    caller = Caller("client/x", dict.fromkeys((ResourceType.CLUSTER, ResourceType.TOPIC), Operation.CREATE))
    request = messages.CreateTopics(topics=(messages.NewTopic(TOPIC, TOPIC_ID),), request_id=TOPIC_ID)
    effects = [
        effect for _ in range(2) for effect in controller.step(events.RequestArrived(1_000_000, 1, request, caller))
    ]
    answers = [each.answer.topics[0].refusal for each in effects if isinstance(each, events.Answer)]
    recorded = [each.event.outcome for each in effects if isinstance(each, Emit) and isinstance(each.event, Audit)]

    assert (answers, recorded) == ([None, None], ["ALLOWED"])


def test_a_change_names_the_rule_that_allowed_it_and_a_refusal_the_one_that_denied_it() -> None:
    """One event for all topics that one rule refuses, none for the one that is permitted beside them."""
    controller = Controller()
    controller.start(1)
    for number, name in enumerate(("a.1", "a.2", "b")):
        controller.create(1, name=name, topic_id=f"{number}" * 8 + "-0000-4000-8000-000000000000")
    allows = Rule("client/x", Permission.ALLOW, Operation.DELETE, ResourceType.TOPIC, Pattern.LITERAL, "*")
    denies = Rule("client/*", Permission.DENY, Operation.DELETE, ResourceType.TOPIC, Pattern.PREFIXED, "a.")
    controller.ask(messages.AlterAcls(entries=(allows, denies)))
    caller = Caller("client/x", {ResourceType.TOPIC: Operation.DELETE}, "DeleteTopics")
    refs = tuple(messages.TopicRef(name) for name in ("a.1", "a.2", "b"))
    refused, changed = _told(controller, messages.DeleteTopics(topics=refs), caller)

    assert (refused.outcome, refused.resource_name, refused.n_coalesced, refused.rule) == (
        "REFUSED", "a.1", 2, str(denies)
    )  # fmt: skip
    assert (changed.outcome, changed.resource_name, changed.rule) == ("ALLOWED", "b", str(allows))
