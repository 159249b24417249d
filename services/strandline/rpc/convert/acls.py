"""Rules of who may do what on the wire, both ways.

Invariant: a number that this release does not know is refused, and never read as another one. Metadata with such a
rule is not believed at all: a node keeps to the rules that it knew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from strandline.core.control import messages
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.permissions import CLUSTER_NAME, Operation, Pattern, Permission, ResourceType, Rule
from strandline.rpc.convert.errors import write_error
from strandline.v1 import controller_service_pb2 as pb, metadata_pb2

_RESOURCES = {each: metadata_pb2.AclResourceType.Value(f"ACL_RESOURCE_TYPE_{each.name}") for each in ResourceType}
_PATTERNS = {each: metadata_pb2.AclPatternType.Value(f"ACL_PATTERN_TYPE_{each.name}") for each in Pattern}
_OPERATIONS = {each: metadata_pb2.AclOperation.Value(f"ACL_OPERATION_{each.name}") for each in Operation}
_PERMISSIONS = {each: metadata_pb2.AclPermissionType.Value(f"ACL_PERMISSION_TYPE_{each.name}") for each in Permission}
_ANY = (0, 1)
"""In a filter, in every one of the four enumerations."""

_Value = TypeVar("_Value")
_Message = TypeVar("_Message")


def _read(known: Mapping[_Value, int], number: int, field: str) -> _Value:
    for value, its in known.items():
        if its == number:
            return value
    numbers = ", ".join(f"{value} ({its})" for value, its in known.items())
    raise Refused(ErrorCode.INVALID_REQUEST, f"{field} {number} is none of {numbers}; give one of them", field=field)


def or_refusal(read: Callable[[_Message], _Value], message: _Message) -> _Value | Refusal:
    """What is read, or why it cannot be."""
    try:
        return read(message)
    except Refused as error:
        return error.refusal


def write_acl(rule: Rule) -> metadata_pb2.Acl:
    """One rule."""
    return metadata_pb2.Acl(
        resource_type=_RESOURCES[rule.resource],
        resource_name=rule.name,
        resource_pattern_type=_PATTERNS[rule.pattern],
        principal=rule.principal,
        host="*",
        operation=_OPERATIONS[rule.operation],
        permission_type=_PERMISSIONS[rule.permission],
    )


def read_acl(message: metadata_pb2.Acl) -> Rule:
    """One rule.

    Raises:
        Refused: INVALID_REQUEST: a number is not known, or a host is named.
    """
    if message.host not in ("", "*"):
        why = f"host {message.host[:60]!r}: rules do not depend on addresses, which certificates do not name; give *"
        raise Refused(ErrorCode.INVALID_REQUEST, why, field="host")
    resource = _read(_RESOURCES, message.resource_type, "resource_type")
    pattern = message.resource_pattern_type or metadata_pb2.ACL_PATTERN_TYPE_LITERAL
    return Rule(
        principal=message.principal,
        permission=_read(_PERMISSIONS, message.permission_type, "permission_type"),
        operation=_read(_OPERATIONS, message.operation, "operation"),
        resource=resource,
        pattern=_read(_PATTERNS, pattern, "resource_pattern_type"),
        name=message.resource_name or (CLUSTER_NAME if resource is ResourceType.CLUSTER else ""),
    )


_written: tuple[tuple[Rule, ...], metadata_pb2.AclRules] | None = None


def write_rules_message(rules: tuple[Rule, ...]) -> metadata_pb2.AclRules:
    """All rules. Images repeat the same ones at every change of a topic, so the last ones are kept."""
    global _written
    if _written is None or _written[0] is not rules:
        _written = (rules, metadata_pb2.AclRules(acls=map(write_acl, rules)))
    return _written[1]


def read_alter(message: pb.CreateAclsRequest | pb.DeleteAclsRequest) -> messages.AlterAcls:
    """Rules to add, or to take back; an entry that cannot be read is answered by itself."""
    entries: list[Rule | messages.AclFilter | Refusal] = []
    if isinstance(message, pb.CreateAclsRequest):
        entries += (or_refusal(read_acl, one) for one in message.creations)
    else:
        entries += (or_refusal(_read_filter, one) for one in message.filters)
    return messages.AlterAcls(
        cluster_id=message.cluster_id if message.HasField("cluster_id") else None,
        entries=tuple(entries),
        validate_only=message.validate_only,
        force=message.force,
    )


def write_created(answer: messages.EntriesAltered) -> pb.CreateAclsResponse:
    """What became of each."""
    response = pb.CreateAclsResponse()
    for refusal in answer.refusals:
        write_error(response.results.add(), refusal)
    return response


def write_deleted(answer: messages.EntriesAltered) -> pb.DeleteAclsResponse:
    """What each filter took back."""
    response = pb.DeleteAclsResponse()
    for one, refusal in zip(answer.results, answer.refusals, strict=True):
        rules = () if isinstance(one, Refusal) else one
        write_error(response.filter_results.add(matching_acls=map(write_acl, rules)), refusal)
    return response


def _read_filter(message: pb.AclFilter) -> messages.AclFilter:
    pattern = message.pattern_type_filter
    speaks = pattern == metadata_pb2.ACL_PATTERN_TYPE_MATCH
    return messages.AclFilter(
        resource=_read_any(_RESOURCES, message.resource_type_filter, "resource_type_filter"),
        name=message.resource_name_filter if message.HasField("resource_name_filter") else None,
        pattern=None if speaks else _read_any(_PATTERNS, pattern, "pattern_type_filter"),
        principal=message.principal_filter if message.HasField("principal_filter") else None,
        operation=_read_any(_OPERATIONS, message.operation, "operation"),
        permission=_read_any(_PERMISSIONS, message.permission_type, "permission_type"),
        speaks_of_name=speaks,
    )


def _read_any(known: Mapping[_Value, int], number: int, field: str) -> _Value | None:
    return None if number in _ANY else _read(known, number, field)


def read_describe(message: pb.DescribeAclsRequest) -> messages.DescribeAcls:
    """Rules to list.

    Raises:
        Refused: INVALID_REQUEST: the filter has a number that is not known.
    """
    cluster_id = message.cluster_id if message.HasField("cluster_id") else None
    return messages.DescribeAcls(cluster_id=cluster_id, filter=_read_filter(message.filter))


def delete_request(
    cluster_id: str | None, rules: Iterable[Rule], *, validate_only: bool, force: bool
) -> pb.DeleteAclsRequest:
    """Rules that a client takes back, each by all that it says."""
    filters = [
        pb.AclFilter(
            resource_type_filter=_RESOURCES[rule.resource],
            resource_name_filter=rule.name,
            pattern_type_filter=_PATTERNS[rule.pattern],
            principal_filter=rule.principal,
            operation=_OPERATIONS[rule.operation],
            permission_type=_PERMISSIONS[rule.permission],
        )
        for rule in rules
    ]
    return pb.DeleteAclsRequest(cluster_id=cluster_id, filters=filters, validate_only=validate_only, force=force)
