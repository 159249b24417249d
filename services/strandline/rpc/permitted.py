"""What the current call may access, by the present access rules (C105, C106).

Invariant: a handler that resolves topics with `permitted` reaches no topic that its caller may not access. The removal
of a rule takes effect with the next message, and for answers that are still waiting.
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
"""Returns what a caller may access now, by the present rules."""


def everything() -> Permit:
    """A permit that checks nothing: for callers that need no rules, and for a process without rules."""
    return EVERYTHING


CALL: ContextVar[Permits] = ContextVar("permits", default=everything)
"""The permits of the current call; set before its handler runs."""
IDENTITY: ContextVar[Identity | None] = ContextVar("identity", default=None)
"""The identity of the current call's caller, from its certificate or token; None without TLS."""


def principal_of_call() -> str | None:
    """The principal whose quotas apply to the current call; None for nodes and administrators (C102)."""
    identity = IDENTITY.get()
    if identity is None:
        return ANONYMOUS
    return identity.principal if identity.role is CallerRole.CLIENT else None


def caller_of_call() -> Caller | None:
    """The caller whose rules apply to the current call, or who is audited; None if neither is the case."""
    permits = CALL.get()
    return None if permits is everything else permits().caller


def refused(resource: ResourceType, name: str) -> Refusal | None:
    """Why the current call may not access this resource; None if it may."""
    return CALL.get()().refusal(resource, name)


def sees(resource: ResourceType, name: str) -> bool:
    """Whether the caller may know that this resource exists."""
    return CALL.get()().sees(resource, name)


_NAMED_ALONE = ((ResourceType.GROUP, "group_id"), (ResourceType.TRANSACTIONAL_ID, "transactional_id"))


def refusal_of_whole(permit: Permit, need: Need, request: Any, *, names_one: bool) -> Refusal | None:
    """Why a request is refused as a whole, or None: for requests that concern one resource, or none in particular.

    ``names_one``: also check the group or the transactional id that the request names.
    """
    matcher, of = permit.acls.of(permit.caller.principal), need.of
    if need.scope is Scope.SOME and not matcher.may_to_some(of[ResourceType.TOPIC], ResourceType.TOPIC):
        permit.refused(of[ResourceType.TOPIC], ResourceType.TOPIC, "")
        message = f"{permit.caller.principal} may {of[ResourceType.TOPIC]} no topic"
        return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, message, Outcome.NOT_APPENDED)
    if need.scope is Scope.EVERY and not matcher.may_to_all(of[ResourceType.TOPIC], ResourceType.TOPIC):
        return _not_every_topic(permit, "the answer covers")
    if ResourceType.CLUSTER in of and (ResourceType.TOPIC not in of or need.scope is not Scope.NAMED):
        return permit.refusal(ResourceType.CLUSTER, CLUSTER_NAME)
    named = ((kind, getattr(request, field, "")) for kind, field in _NAMED_ALONE if names_one and kind in of)
    return next((refusal for kind, name in named if name and (refusal := permit.refusal(kind, name))), None)


class _PermittedTopics:
    """The topics that one caller may access."""

    def __init__(self, topics: Topics, permits: Permits) -> None:
        self._topics = topics
        self._permits = permits
        self.cluster_id, self.name_of, self.endpoint_of = topics.cluster_id, topics.name_of, topics.endpoint_of

    def resolve(self, name: str, topic_id: str) -> str | Refusal:
        """The topic's id, or why there is none that the caller may access."""
        found = self._topics.resolve(name, topic_id)
        is_there = name if isinstance(found, str) else ""
        known = self._topics.name_of(topic_id) if topic_id else is_there
        return self._permits().topic_refusal(name, topic_id, known) or found


def permitted(topics: Topics) -> Topics:
    """The topics that the current call may access."""
    permits = CALL.get()
    return topics if permits is everything else _PermittedTopics(topics, permits)


def still_permitted(
    served: Sequence[ServedPartition], topics: Topics, permits: Permits
) -> tuple[Sequence[ServedPartition], tuple[Unresolved, ...]]:
    """Split what was read for a call that waited: what its caller may still read, and refusals for the rest."""
    if permits is everything:
        return served, ()
    permit = permits()
    kept: list[ServedPartition] = []
    lost: list[Unresolved] = []
    for part in served:
        tp = part.result.tp
        name = topics.name_of(tp.topic_id)
        # A refused partition holds no records; a topic without a name was deleted meanwhile.
        refusal = None if part.result.refusal else permit.refusal(ResourceType.TOPIC, name)
        if refusal is None:
            kept.append(part)
        else:
            lost.append(Unresolved(name, tp.topic_id, tp.partition, refusal))
    return kept, tuple(lost)


def seen(held: Iterable[TopicPartition], topics: Topics) -> Iterable[TopicPartition]:
    """The partitions that the caller of the current call may know of."""
    return (tp for tp in held if sees(ResourceType.TOPIC, topics.name_of(tp.topic_id)))


def subscription_refusal(names: Iterable[str] | None, pattern: str | None) -> Refusal | None:
    """Why a member may not subscribe, or None. A pattern is matched against every topic, so it needs all of them."""
    permit = CALL.get()()
    if permit.caller.needs is None:
        return None
    if pattern and not permit.acls.of(permit.caller.principal).may_to_all(Operation.DESCRIBE, ResourceType.TOPIC):
        return _not_every_topic(permit, "a pattern is matched against")
    return next((why for name in names or () if (why := permit.refusal(ResourceType.TOPIC, name))), None)


def _not_every_topic(permit: Permit, why: str) -> Refusal:
    permit.refused(Operation.DESCRIBE, ResourceType.TOPIC, EVERY_NAME)
    message = f"{permit.caller.principal} may not DESCRIBE every topic, which {why}; grant topic * LITERAL"
    return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, message, Outcome.NOT_APPENDED)


def sees_every_topic(acls: Callable[[], Acls], peer: bytes | None) -> bool:
    """Whether the holder of this DER certificate may know of every topic; False without a certificate."""
    identity = None if peer is None else identity_of_peer(peer_properties(peer)["peer_uri"])
    if identity is None or identity.role is not CallerRole.CLIENT:
        return identity is not None
    return acls().of(identity.principal).may_to_all(Operation.DESCRIBE, ResourceType.TOPIC)
