"""What the call that is being served may touch, by the rules of who may do what as they are now (C105, C106).

Invariant: a handler that resolves topics by `permitted` reaches none that its caller may not touch, and a rule that was
taken back counts from the next message on, and for the answers that wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any

from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.messages import ServedPartition
from strandline.core.permissions import (
    ANONYMOUS,
    CLUSTER_NAME,
    EVERY_NAME,
    EVERYTHING,
    Acls,
    Caller,
    Operation,
    Permit,
    ResourceType,
)
from strandline.core.types import TopicPartition
from strandline.rpc.convert.errors import Topics, Unresolved
from strandline.rpc.permissions import CallerRole, Identity, Need, Scope, identity_of_peer
from strandline.rpc.tls import peer_properties

Permits = Callable[[], Permit]
"""What may be touched now."""


def everything() -> Permit:
    """Nothing is checked: for callers that need no rules, and in a process without them."""
    return EVERYTHING


CALL: ContextVar[Permits] = ContextVar("permits", default=everything)
"""Of the call that is being served; set before its handler runs."""
IDENTITY: ContextVar[Identity | None] = ContextVar("identity", default=None)
"""Whom the certificate of the call names; None without TLS."""


def principal_of_call() -> str | None:
    """Whose quotas hold for the call that is served; None: no quota does, as for nodes and administrators (C102)."""
    identity = IDENTITY.get()
    if identity is None:
        return ANONYMOUS
    return identity.principal if identity.role is CallerRole.CLIENT else None


def caller_of_call() -> Caller | None:
    """Whose rules apply to the call, or who changes something by it; None: no rules do, and nothing is changed."""
    permits = CALL.get()
    return None if permits is everything else permits().caller


def refused(resource: ResourceType, name: str) -> Refusal | None:
    """Why the call may not touch this."""
    return CALL.get()().refusal(resource, name)


def sees(resource: ResourceType, name: str) -> bool:
    """Whether the caller may know that this is there."""
    return CALL.get()().sees(resource, name)


_NAMED_ALONE = ((ResourceType.GROUP, "group_id"), (ResourceType.TRANSACTIONAL_ID, "transactional_id"))


def refusal_of_whole(permit: Permit, need: Need, request: Any, *, names_one: bool) -> Refusal | None:
    """Why a request is refused as a whole: what it touches is one thing, or nothing in particular.

    ``names_one``: whether that may be a group or a transactional id.
    """
    matcher, of = permit.acls.of(permit.caller.principal), need.of
    if need.scope is Scope.SOME and not matcher.may_to_some(of[ResourceType.TOPIC], ResourceType.TOPIC):
        permit.refused(of[ResourceType.TOPIC], ResourceType.TOPIC, "")
        message = f"{permit.caller.principal} may {of[ResourceType.TOPIC]} no topic"
        return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, message, Outcome.NOT_APPENDED)
    if need.scope is Scope.EVERY and not matcher.may_to_all(of[ResourceType.TOPIC], ResourceType.TOPIC):
        return _not_every_topic(permit, "this tells of")
    if ResourceType.CLUSTER in of and (ResourceType.TOPIC not in of or need.scope is not Scope.NAMED):
        return permit.refusal(ResourceType.CLUSTER, CLUSTER_NAME)
    named = ((kind, getattr(request, field, "")) for kind, field in _NAMED_ALONE if names_one and kind in of)
    return next((refusal for kind, name in named if name and (refusal := permit.refusal(kind, name))), None)


class _PermittedTopics:
    """Topics as one caller finds them."""

    def __init__(self, topics: Topics, permits: Permits) -> None:
        self._topics = topics
        self._permits = permits
        self.cluster_id, self.name_of, self.endpoint_of = topics.cluster_id, topics.name_of, topics.endpoint_of

    def resolve(self, name: str, topic_id: str) -> str | Refusal:
        """The topic's id, or why there is none that the caller may touch."""
        found = self._topics.resolve(name, topic_id)
        is_there = name if isinstance(found, str) else ""
        known = self._topics.name_of(topic_id) if topic_id else is_there
        return self._permits().topic_refusal(name, topic_id, known) or found


def permitted(topics: Topics) -> Topics:
    """Topics as the caller of the present call finds them."""
    permits = CALL.get()
    return topics if permits is everything else _PermittedTopics(topics, permits)


def still_permitted(
    served: Sequence[ServedPartition], topics: Topics, permits: Permits
) -> tuple[Sequence[ServedPartition], tuple[Unresolved, ...]]:
    """What was read for a call that waited, without what its caller may not read any more."""
    if permits is everything:
        return served, ()
    permit = permits()
    kept: list[ServedPartition] = []
    lost: list[Unresolved] = []
    for part in served:
        tp = part.result.tp
        name = topics.name_of(tp.topic_id)
        # An answer that refuses holds nothing; a topic without a name was deleted meanwhile.
        refusal = None if part.result.refusal else permit.refusal(ResourceType.TOPIC, name)
        if refusal is None:
            kept.append(part)
        else:
            lost.append(Unresolved(name, tp.topic_id, tp.partition, refusal))
    return kept, tuple(lost)


def seen(held: Iterable[TopicPartition], topics: Topics) -> Iterable[TopicPartition]:
    """Of partitions those that the caller of the present call may know of."""
    return (tp for tp in held if sees(ResourceType.TOPIC, topics.name_of(tp.topic_id)))


def subscription_refusal(names: Iterable[str] | None, pattern: str | None) -> Refusal | None:
    """Why a member may not subscribe: a pattern is compared with every topic, without asking who may know of it."""
    permit = CALL.get()()
    if permit.caller.needs is None:
        return None
    if pattern and not permit.acls.of(permit.caller.principal).may_to_all(Operation.DESCRIBE, ResourceType.TOPIC):
        return _not_every_topic(permit, "a pattern is compared with")
    return next((why for name in names or () if (why := permit.refusal(ResourceType.TOPIC, name))), None)


def _not_every_topic(permit: Permit, why: str) -> Refusal:
    permit.refused(Operation.DESCRIBE, ResourceType.TOPIC, EVERY_NAME)
    message = f"{permit.caller.principal} may not DESCRIBE every topic, which {why}; grant topic * LITERAL"
    return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, message, Outcome.NOT_APPENDED)


def sees_every_topic(acls: Callable[[], Acls], peer: bytes | None) -> bool:
    """Whether the holder of this certificate, DER, may know of every topic; None: there is no certificate."""
    identity = None if peer is None else identity_of_peer(peer_properties(peer)["peer_uri"])
    if identity is None or identity.role is not CallerRole.CLIENT:
        return identity is not None
    return acls().of(identity.principal).may_to_all(Operation.DESCRIBE, ResourceType.TOPIC)
