"""Audits the calls that change something (C109).

The caller is passed on to the controller's core, which knows the state before the change. What a data node or HandOver
changed is read from the answer, by the functions below.

Invariant: calls of nodes, to each other or to controllers, are never audited as a caller's change.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from strandline.core.audit import Change, allowed
from strandline.core.errors import ErrorCode
from strandline.core.permissions import ANONYMOUS, CLUSTER_NAME, Caller, Permit, ResourceType, Tell
from strandline.rpc.interceptors import Handler, Wrapping
from strandline.rpc.permissions import ALWAYS, CHANGES, TABLE, CallerRole
from strandline.rpc.permitted import CALL, IDENTITY, everything


def _deleted_records(_request: Any, answer: Any) -> Iterator[Change]:
    for topic in answer.topics:
        # After a time-out the leader has deleted its records, but some replica has not.
        done = (each for each in topic.partitions if each.error_code in (0, ErrorCode.REQUEST_TIMED_OUT))
        starts = {
            f"log start of {each.partition_index}": str(each.low_watermark) if each.HasField("low_watermark") else "?"
            for each in done
        }
        if starts:
            yield ResourceType.TOPIC, topic.name, {}, starts


def _ended_transactions(request: Any, answer: Any) -> Iterator[Change]:
    for marker, row in zip(request.markers, answer.markers, strict=True):
        outcome = "commit" if marker.transaction_result else "abort"
        for topic in row.topics:
            ended = [each.partition_index for each in topic.partitions if not each.error_code]
            after = {f"transaction of producer {marker.producer_id} in {index}": outcome for index in ended}
            if after:
                yield ResourceType.TOPIC, topic.name, {}, after


def _deleted_offsets(request: Any, answer: Any) -> Iterator[Change]:
    rows = ((topic.name, each) for topic in answer.topics for each in topic.partitions)
    gone = [f"{name}-{each.partition_index}" for name, each in rows if not each.error_code]
    if gone and not answer.error_code:
        yield ResourceType.GROUP, request.group_id, dict.fromkeys(gone, "committed"), {}


def _reset_offsets(request: Any, answer: Any) -> Iterator[Change]:
    # By name: the answer has the topics in another order, unknown ones last.
    rows = ((key, each) for topic in answer.topics for key in (topic.name, topic.topic_id) for each in topic.partitions)
    refused = {(key, each.partition_index) for key, each in rows if each.error_code}
    asked = ((topic.name or topic.topic_id, each) for topic in request.topics for each in topic.partitions)
    done = ((name, each) for name, each in asked if (name, each.partition_index) not in refused)
    after = {f"{name}-{each.partition_index}": str(each.committed_offset) for name, each in done}
    if after:
        yield ResourceType.GROUP, request.group_id, {}, after


def _deleted_groups(_request: Any, answer: Any) -> Iterator[Change]:
    for row in answer.results:
        if not row.error_code:
            yield ResourceType.GROUP, row.group_id, {}, {}


def _handed_over(request: Any, answer: Any) -> Iterator[Change]:
    after = {"controller": request.to} if request.HasField("to") else {}
    yield ResourceType.CLUSTER, CLUSTER_NAME, {"controller": answer.controller_id}, after


def _requested(request: Any) -> Iterator[Change]:
    """The changes to record for a call that its caller gave up: they may have been made."""
    markers = getattr(request, "markers", ())
    topics = (*getattr(request, "topics", ()), *(topic for marker in markers for topic in marker.topics))
    groups = (*getattr(request, "groups_names", ()), getattr(request, "group_id", ""))
    named = [(ResourceType.GROUP, name) for name in groups if name]
    named = named or [(ResourceType.TOPIC, getattr(each, "name", "") or each.topic_id) for each in topics]
    for kind, name in named or [(ResourceType.CLUSTER, CLUSTER_NAME)]:
        yield kind, name, {}, {"done": "not known"}


_COMMIT = "/strandline.v1.GroupService/OffsetCommit"
"""Audited only where an administrator resets a group's offsets: all other commits are a consumer's own."""
_READ_FROM_ANSWER: Mapping[str, Callable[[Any, Any], Iterator[Change]]] = {
    "/strandline.v1.LeaderService/DeleteRecords": _deleted_records,
    "/strandline.v1.LeaderService/WriteTxnMarkers": _ended_transactions,
    _COMMIT: _reset_offsets,
    "/strandline.v1.GroupService/OffsetDelete": _deleted_offsets,
    "/strandline.v1.GroupService/DeleteGroups": _deleted_groups,
    "/strandline.v1.ControllerService/HandOver": _handed_over,
}


class AuditInterceptor(Wrapping):
    """The last interceptor before the handlers. Methods that it does not audit keep their handler."""

    def __init__(self, tell: Tell) -> None:
        super().__init__()
        self._tell = tell

    def wrap(self, method: str, handler: Handler) -> Handler:
        """See `Wrapping`."""
        if method not in CHANGES and method != _COMMIT:
            return handler
        return handler._replace(unary_unary=self._audited(method, handler.unary_unary))

    def _audited(self, method: str, inner: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        read_changes, for_every_node = _READ_FROM_ANSWER.get(method), TABLE[method].get(CallerRole.REPLICA) is ALWAYS

        async def answering(request: Any, context: Any) -> Any:
            identity = IDENTITY.get()
            role = None if identity is None else identity.role
            is_nodes = for_every_node if role is None else role is CallerRole.REPLICA
            if is_nodes or (method == _COMMIT and (request.member_id or role is not CallerRole.ADMIN)):
                return await inner(request, context)
            if CALL.get() is everything:
                principal = ANONYMOUS if identity is None else identity.principal
                permit = Permit(Caller(principal, None, method, context.peer()))
                CALL.set(lambda: permit)
            if read_changes is None:
                return await inner(request, context)
            found = _requested(request)
            try:
                answer = await inner(request, context)
                found = read_changes(request, answer)
            except Exception:
                # The call as a whole was refused or failed, so nothing was changed.
                found = iter(())
                raise
            finally:
                for change in found:
                    self._tell(allowed(CALL.get()(), *change))
            return answer

        return answering
