"""What a request changed, as the audit records it: the few fields of each resource that its method changes.

Invariant: an audit event contains the fields named here and nothing else of the request or the state (C109), so it
cannot contain a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from strandline.core.control import messages
from strandline.core.control.state import ClusterState, NodeRecord, Transaction
from strandline.core.messages import TopicImage
from strandline.core.permissions import ANONYMOUS, BY_ROLE, CLUSTER_NAME, Permit, ResourceType, audit_of
from strandline.core.state_events import Audit

NODE = "node"
"""A type of resource that rules do not cover."""

_Texts = Mapping[str, str]
Change = tuple[str, str, _Texts, _Texts]
"""Type and name of a resource, and its audited fields before and after."""
_Find = Callable[[ClusterState, ClusterState, Transaction], Iterator[Change]]


def _topics(view: Callable[[TopicImage], _Texts]) -> _Find:
    def find(before: ClusterState, after: ClusterState, transaction: Transaction) -> Iterator[Change]:
        put = (*(each.topic_id for each in transaction.topics), *(each.tp.topic_id for each in transaction.partitions))
        for topic_id in dict.fromkeys((*put, *transaction.deleted_topic_ids)):
            was, now = before.topics.get(topic_id), after.topics.get(topic_id)
            name = next(topic.name for topic in (now, was) if topic is not None)
            yield ResourceType.TOPIC, name, view(was) if was else {}, view(now) if now else {}

    return find


def _shape(topic: TopicImage) -> _Texts:
    factor = len(topic.partitions[0].settled_replicas)
    return {"partitions": str(len(topic.partitions)), "replication.factor": str(factor), **dict(topic.configs)}


def _targets(topic: TopicImage) -> _Texts:
    found = {}
    for each in topic.partitions:
        rate = f" at {each.throttle_bytes_per_s} B/s" if each.throttle_bytes_per_s else ""
        found[f"replicas of {each.tp.partition}"] = ",".join(map(str, each.queued_target or each.target)) + rate
    return found


def _leaders(topic: TopicImage) -> _Texts:
    return {
        f"leader of {each.tp.partition}": f"{each.leader} in epoch {each.leader_epoch}" for each in topic.partitions
    }


def _nodes(before: ClusterState, after: ClusterState, transaction: Transaction) -> Iterator[Change]:
    put = (*(each.image.node_id for each in transaction.nodes), *(each.node_id for each in transaction.removed_nodes))
    for node_id in dict.fromkeys(put):
        yield NODE, str(node_id), _standing(before.nodes.get(node_id)), _standing(after.nodes.get(node_id))


def _standing(node: NodeRecord | None) -> _Texts:
    if node is None:
        return {}
    image = node.image
    states = {"registered": True, "draining": image.draining, "shutting_down": image.shutting_down}
    return {name: str(holds).lower() for name, holds in states.items()}


def _rules(_before: ClusterState, _after: ClusterState, transaction: Transaction) -> Iterator[Change]:
    for rule in transaction.removed_acls:
        yield rule.resource, rule.name, {"rule": str(rule)}, {}
    for rule in transaction.acls:
        yield rule.resource, rule.name, {}, {"rule": str(rule)}


def _quotas(_before: ClusterState, _after: ClusterState, transaction: Transaction) -> Iterator[Change]:
    old, new = (
        {f"{each.key} of {each.principal}": f"{each.value:g}" for each in quotas}
        for quotas in (transaction.removed_quotas, transaction.quotas)
    )
    yield ResourceType.CLUSTER, CLUSTER_NAME, old, new


# By type of request. Other changes of the same step, which the request did not ask for, are not recorded.
_FIND: Mapping[type[Any], _Find] = {
    messages.CreateTopics: _topics(_shape),
    messages.DeleteTopics: _topics(_shape),
    messages.CreatePartitions: _topics(_shape),
    messages.AlterTopicConfigs: _topics(_shape),
    messages.AlterPartitionReassignments: _topics(_targets),
    messages.ElectLeaders: _topics(_leaders),
    messages.ShutdownNode: _nodes,
    messages.UnregisterNode: _nodes,
    messages.DrainNode: _nodes,
    messages.AlterAcls: _rules,
    messages.AlterClientQuotas: _quotas,
}


def changes(
    request: object, permit: Permit, before: ClusterState, after: ClusterState, by: Transaction
) -> Iterator[Audit]:
    """An event for each resource that the request changed; none if it changed nothing."""
    find = _FIND.get(type(request))
    for resource, name, old, new in find(before, after, by) if find else ():
        gone = {key: value for key, value in old.items() if new.get(key) != value}
        came = {key: value for key, value in new.items() if old.get(key) != value}
        if gone or came:
            yield allowed(permit, resource, name, gone, came)._replace(meta_offset=by.header.metadata_offset)


def allowed(permit: Permit, resource: str, name: str, before: _Texts, after: _Texts) -> Audit:
    """The event of a caller that changed a resource."""
    by_role = None if permit.caller.principal == ANONYMOUS else BY_ROLE
    rule = by_role if permit.caller.needs is None else permit.rule_of_change(resource, name)
    return audit_of(permit.caller, resource, name, "ALLOWED", rule)._replace(before=before, after=after)


# ---- refusals
# Merges refusals of one kind into one event, so that a flood of refusals floods neither the export nor memory.
#
# Invariant: at most `MOST_KINDS` + 1 events are held, and every refusal is counted in one of them.

MOST_KINDS = 100


class MergedRefusals:
    """Refusals since the last drain, counted by principal, method, type of resource and rule."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str | None, ...], Audit] = {}

    def take(self, event: Audit) -> None:
        """Add one refusal, or several that are already merged."""
        kind = (event.principal, event.method, event.resource_type, event.rule)
        # Then all further kinds share one event, however many principals and rules there are.
        if kind not in self._kinds and len(self._kinds) >= MOST_KINDS:
            kind = (None, None, None, None)
            event = event._replace(
                principal=None, peer=None, method=None, resource_type=None, resource_name=None, rule=None
            )
        if (known := self._kinds.get(kind)) is not None:
            event = known._replace(n_coalesced=known.n_coalesced + event.n_coalesced, last_ms=event.last_ms)
        self._kinds[kind] = event

    def drain(self) -> list[Audit]:
        """Return all events and start empty."""
        found, self._kinds = list(self._kinds.values()), {}
        return found
