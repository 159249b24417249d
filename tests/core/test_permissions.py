"""Rules of who may do what: the compiled matcher against one said plainly, changes of rules, and their bounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from controller_builders import TOPIC, Controller, lines_of, started
from hypothesis import given, strategies as st

from strandline.core.control import events, messages
from strandline.core.control.messages import AclFilter
from strandline.core.control.recovery import GivenNode, recover
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.permissions import (
    CLUSTER_NAME,
    EVERY_CLIENT,
    OPERATIONS,
    Acls,
    Caller,
    Operation,
    Pattern,
    Permission,
    Permit,
    ResourceType,
    Rule,
)
from strandline.core.types import ACLS, NodeId

TOPICS = ResourceType.TOPIC
names = st.text("ab.*", min_size=1, max_size=4)
resources = st.sampled_from(ResourceType)
rules = st.builds(
    Rule,
    principal=st.sampled_from(["client/x", "client/y", EVERY_CLIENT]),
    permission=st.sampled_from(Permission),
    operation=st.sampled_from(Operation),
    resource=resources,
    pattern=st.sampled_from(Pattern),
    name=names,
)


def rule(words: str) -> Rule:
    """`client/x ALLOW READ topic LITERAL t` as a rule."""
    principal, permission, operation, resource, pattern, name = words.split(" ", 5)
    return Rule(principal, Permission(permission), Operation(operation), ResourceType(resource), Pattern(pattern), name)


@given(st.lists(rules, max_size=12), st.sampled_from(["client/x", "client/z"]), resources, names)
def test_the_matcher_answers_as_one_that_looks_at_every_rule(
    given_rules: list[Rule], principal: str, resource: ResourceType, name: str
) -> None:
    """Random rules, prefixes and denials: for every operation the compiled answer is that of the deciding rule, and the
    rule that is named for it one that decides the same."""
    matcher = Acls(tuple(given_rules)).of(principal)
    for operation in Operation:
        of = [each for each in given_rules if each.principal in (principal, EVERY_CLIENT) and each.resource is resource]
        found = [each for each in of if each.decides(operation) and each.matches(name)]
        decides = min(found, key=lambda each: each.permission is Permission.ALLOW, default=None)
        named = matcher.rule_for(operation, resource, name)

        assert (named and named.permission) == (decides and decides.permission)
        assert named is None or (named.decides(operation) and named.matches(name))

        assert matcher.may(operation, resource, name) == (
            decides is not None and decides.permission is Permission.ALLOW
        )


@given(st.lists(rules, max_size=8), resources, st.sampled_from(Operation))
def test_some_and_all_are_what_names_say(given_rules: list[Rule], resource: ResourceType, operation: Operation) -> None:
    """Permission for some name means that one name is allowed, in a rule or not; for all names, that each one is."""
    matcher = Acls(tuple(given_rules)).of("client/x")
    tried = [each.name + more for each in given_rules for more in ("", "!", "b!")] + ["!"]
    found = [matcher.may(operation, resource, name) for name in tried]

    assert matcher.may_to_some(operation, resource) == any(found)
    assert all(found) or not matcher.may_to_all(operation, resource)


@pytest.mark.parametrize("name", ["a.c", "a.b", "x"])
def test_t66(name: str) -> None:
    """ALLOW READ PREFIXED `a.`, DENY READ LITERAL `a.b`: `a.c` alone is read."""
    given_rules = [rule("client/x ALLOW READ topic PREFIXED a."), rule("client/x DENY READ topic LITERAL a.b")]

    assert Acls(tuple(given_rules)).of("client/x").may(Operation.READ, TOPICS, name) == (name == "a.c")


def test_a_check_costs_the_same_whatever_the_number_of_rules() -> None:
    """With 10,000 rules of 1,000 principals it runs as many lines as with 10 of one."""

    def acls(principals: int) -> Acls:
        return Acls(
            tuple(
                rule(f"client/{number} {permission} READ topic {pattern} {number}.{each}.")
                for number in range(principals)
                for each in range(3)
                for permission in Permission
                for pattern in Pattern
            )[: principals * 10]
        )

    few, many = acls(1), acls(1_000)
    for each in (few, many):
        each.of("client/0").may(Operation.READ, TOPICS, "warm")
    cost = [lines_of(lambda of=of: of.of("client/0").may(Operation.READ, TOPICS, "0.0.topic")) for of in (few, many)]

    assert len(many.rules) == 10_000
    assert cost[0] == cost[1]


def test_rules_that_are_named_in_full_are_removed_at_the_same_cost_whatever_their_number() -> None:
    """A file of 10,000 rules is one request, and sessions must not end while it is carried out."""
    costs = []
    for count in (100, 1_000):
        controller = started(1)
        added = [rule(f"client/{n} ALLOW READ topic LITERAL t") for n in range(count)]
        filters = tuple(AclFilter(**{name: getattr(each, name) for name in Rule.__slots__}) for each in added[:100])
        controller.ask(messages.AlterAcls(entries=tuple(added)))
        removal = messages.AlterAcls(entries=filters, validate_only=True)
        costs.append(lines_of(lambda ask=controller.ask, removal=removal: ask(removal)))

    assert costs[1] < 4 * costs[0]


def _create(controller: Controller, *words: str, caller: str = "", **more: Any) -> list[ErrorCode | None]:
    request = messages.AlterAcls(entries=tuple(map(rule, words)), **more)
    return _codes(_ask(controller, request, caller).refusals)


def _codes(refusals: Iterable[Refusal | None]) -> list[ErrorCode | None]:
    return [None if refusal is None else refusal.code for refusal in refusals]


def _ask(controller: Controller, request: Any, caller: str = "", **needs: Operation) -> Any:
    of = Caller(caller, {ResourceType(kind): operation for kind, operation in needs.items()}) if caller else None
    effects = controller.step(events.RequestArrived(controller.now_ms, 1, request, of))
    return next(effect.answer for effect in effects if isinstance(effect, events.Answer))


READS = "client/x ALLOW READ topic LITERAL t"
ADMINISTERS = f"client/x ALLOW ALTER cluster LITERAL {CLUSTER_NAME}"


def test_rules_are_added_listed_and_taken_back() -> None:
    """Each once; a filter finds by what it says, also the rules that speak of a name; the state holds what is left."""
    controller = started(1, 2, 3)
    made = _create(controller, READS, READS, "client/y DENY WRITE topic PREFIXED t", validate_only=True)
    none = controller.core.state.acls
    _create(controller, READS, "client/y DENY WRITE topic PREFIXED t", ADMINISTERS)
    speaking = controller.ask(messages.DescribeAcls(filter=AclFilter(name="t2", speaks_of_name=True))).rules
    taken = controller.ask(messages.AlterAcls(entries=(AclFilter(resource=TOPICS), AclFilter(name="gone"))))

    assert (made, none) == ([None] * 3, ())
    assert [str(each) for each in speaking] == ["client/y DENY WRITE topic PREFIXED t"]
    assert [len(row) for row in taken.results if not isinstance(row, Refusal)] == [2]
    assert _codes(taken.refusals) == [None, ErrorCode.RESOURCE_NOT_FOUND]
    assert controller.core.state.acls == (rule(ADMINISTERS),)


@pytest.mark.parametrize(
    "words",
    [
        "x ALLOW READ topic LITERAL t",
        "client/x y ALLOW READ topic LITERAL t".replace("x y", "x/y"),
        "client/x ALLOW READ topic LITERAL a\nb",
        "client/x ALLOW READ topic LITERAL \x1b[2J",
        f"client/x ALLOW READ topic LITERAL {'a' * 250}",
        "client/x ALLOW WRITE group LITERAL g",
        "client/x ALLOW ALTER cluster PREFIXED kafka",
        "client/x DENY READ topic LITERAL t",
    ],
)
def test_what_can_be_no_rule_is_refused(words: str) -> None:
    """A principal, a name, an operation that there is not, and the contrary of a rule; its neighbours are added."""
    controller = started(1, 2, 3)
    _create(controller, READS)

    assert _create(controller, words, "client/z ALLOW READ topic LITERAL t") == [ErrorCode.INVALID_REQUEST, None]


def test_a_client_locks_itself_out_only_by_force() -> None:
    """A client who may change rules may not take that from itself, by removal or denial, without force."""
    controller = started(1, 2, 3)
    _create(controller, ADMINISTERS)
    own = messages.AlterAcls(entries=(AclFilter(principal="client/x"),))
    refused = _codes(_ask(controller, own, "client/x").refusals)
    denied = _create(controller, f"client/* DENY ALL cluster LITERAL {CLUSTER_NAME}", caller="client/x")
    forced = _create(controller, f"client/* DENY ALL cluster LITERAL {CLUSTER_NAME}", caller="client/x", force=True)

    assert [refused, denied, forced] == [[ErrorCode.POLICY_VIOLATION], [ErrorCode.POLICY_VIOLATION], [None]]


def test_rules_need_their_feature_level() -> None:
    """Below it they are refused with the nodes that keep it low; while there are some, no older node joins."""
    old = started(1, 2, 3, feature_max=ACLS - 1)
    new = started(1, 2, 3)
    _create(new, READS)
    late = new.register(9, feature_max=ACLS - 1).refusal

    assert _create(old, READS) == [ErrorCode.UNSUPPORTED_VERSION]
    assert late.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_topic_that_may_not_be_touched_is_as_one_that_is_not_there() -> None:
    """The controller answers both in the same words; what is permitted beside them is done; lists leave them out."""
    controller = started(1, 2, 3)
    for name, topic_id in ((TOPIC, "1"), ("hidden", "2")):
        new = messages.NewTopic(name, topic_id * 8 + "-0000-4000-8000-000000000000", 1, 1)
        controller.ask(messages.CreateTopics(topics=(new,)))
    _create(controller, f"client/x ALLOW DELETE topic LITERAL {TOPIC}")
    refs = tuple(messages.TopicRef(name) for name in ("hidden", "absent", TOPIC))
    rows = _ask(controller, messages.DeleteTopics(topics=refs), "client/x", topic=Operation.DELETE).topics
    said = [row.refusal.message.replace(ref.name, "") for row, ref in zip(rows[:2], refs, strict=False)]
    listed = _ask(controller, messages.DescribeTopics(topics=()), "client/x", topic=Operation.DESCRIBE).topics
    image = _ask(controller, messages.GetMetadata(), "client/x", topic=Operation.DESCRIBE).image

    assert _codes(row.refusal for row in rows) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2 + [None]
    assert said[0] == said[1]
    assert (listed, image.topics, image.acls) == ((), (), None)


def test_moves_are_listed_of_topics_that_the_caller_may_describe() -> None:
    """A move of another topic is left out of the list, and its topic is refused as one that is not there."""
    controller = started(1, 2, 3)
    for name, topic_id in ((TOPIC, "1"), ("hidden", "2")):
        controller.create(1, name=name, topic_id=topic_id * 8 + "-0000-4000-8000-000000000000")
        target = messages.ReassignPartition(messages.TopicRef(name), 0, (NodeId(2),))
        controller.ask(messages.AlterPartitionReassignments(partitions=(target,)))
    _create(controller, f"client/x ALLOW DESCRIBE topic LITERAL {TOPIC}")

    def listed(*names: str) -> Any:
        asked = tuple(messages.PartitionsRef(messages.TopicRef(name)) for name in names)
        request = messages.ListPartitionReassignments(partitions=asked)
        return _ask(controller, request, "client/x", topic=Operation.DESCRIBE)

    refused = [listed(name).refusal for name in ("hidden", "absent")]

    assert [each.topic.name for each in listed().reassignments] == [TOPIC]
    assert [each.topic.name for each in listed(TOPIC).reassignments] == [TOPIC]
    assert refused[0].code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert refused[0].message.replace("hidden", "absent") == refused[1].message


def test_a_recovery_keeps_the_rules_that_a_node_was_sent() -> None:
    """A store that is made from nodes' directories has the newest rules among them, or an older store's."""
    controller = started(1, 2, 3)
    _create(controller, READS)
    image = controller.core.state.snapshot()
    untold = GivenNode(node_id=NodeId(2), directory_id="d", image=replace(image, acls=None))

    assert recover([GivenNode(node_id=NodeId(1), directory_id="d", image=image)]).acls == (rule(READS),)
    assert recover([untold], controller.core.state).acls == (rule(READS),)


def test_by_its_id_a_hidden_topic_is_unknown() -> None:
    """An id tells nothing: known and hidden, or not known, are refused in the same words."""
    permit = Permit(Caller("client/x", {TOPICS: Operation.READ}), Acls((rule(READS),)))
    hidden, absent = permit.topic_refusal("", "id", "hidden"), permit.topic_refusal("", "id", "")

    assert hidden.code is ErrorCode.UNKNOWN_TOPIC_ID
    assert hidden == absent
    assert permit.topic_refusal("", "id", "t") is None


def test_every_kind_of_resource_can_be_granted_something() -> None:
    """The vocabulary is whole: all kinds, each with ALL."""
    assert set(OPERATIONS) == set(ResourceType)
    assert all(Operation.ALL in operations for operations in OPERATIONS.values())
