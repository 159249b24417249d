"""Access rules on the wire, in both directions.

Invariant: a number that this release does not know is refused, and never read as another one. Metadata with such a rule
is rejected as a whole: a node keeps the rules that it knew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from strandline.core.control import messages
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.permissions import CLUSTER_NAME, Operation, Pattern, Permission, ResourceType, Rule
from strandline.rpc.convert.by_name import As, ByName
from strandline.rpc.convert.errors import write_error
from strandline.v1 import controller_service_pb2 as pb, metadata_pb2

_RESOURCES = {each: metadata_pb2.AclResourceType.Value(f"ACL_RESOURCE_TYPE_{each.name}") for each in ResourceType}
_PATTERNS = {each: metadata_pb2.AclPatternType.Value(f"ACL_PATTERN_TYPE_{each.name}") for each in Pattern}
_OPERATIONS = {each: metadata_pb2.AclOperation.Value(f"ACL_OPERATION_{each.name}") for each in Operation}
_PERMISSIONS = {each: metadata_pb2.AclPermissionType.Value(f"ACL_PERMISSION_TYPE_{each.name}") for each in Permission}
_ANY = (0, 1)
"""The numbers that match anything in a filter, for each of the four enumerations."""
_SPEAKS = metadata_pb2.ACL_PATTERN_TYPE_MATCH

_Value = TypeVar("_Value")
_Message = TypeVar("_Message")


def _one_of(known: Mapping[Any, int], field: str, none: tuple[int, ...] = (), default: int = 0) -> As:
    """A field of an enumeration; the numbers in ``none`` are read as None, and 0 is read as ``default``."""

    def read(number: int) -> Any:
        if number in none:
            return None
        for value, its in known.items():
            if its == (number or default):
                return value
        numbers = ", ".join(f"{value} ({its})" for value, its in known.items())
        why = f"{field} {number} is none of {numbers}; give one of them"
        raise Refused(ErrorCode.INVALID_REQUEST, why, field=field)

    return As(field, known.__getitem__, read)


def each_or_refusal(read: Callable[[_Message], _Value]) -> Callable[[Iterable[_Message]], tuple[_Value | Refusal, ...]]:
    """Read every message; an entry that cannot be read becomes its own refusal and leaves the others alone."""

    def one(message: _Message) -> _Value | Refusal:
        try:
            return read(message)
        except Refused as error:
            return error.refusal

    return lambda given: tuple(map(one, given))


_RULE = ByName(
    Rule,
    metadata_pb2.Acl,
    resource=_one_of(_RESOURCES, "resource_type"),
    name="resource_name",
    pattern=_one_of(_PATTERNS, "resource_pattern_type", default=metadata_pb2.ACL_PATTERN_TYPE_LITERAL),
    operation=_one_of(_OPERATIONS, "operation"),
    permission=_one_of(_PERMISSIONS, "permission_type"),
)
_FILTER = ByName(
    messages.AclFilter,
    pb.AclFilter,
    resource=_one_of(_RESOURCES, "resource_type_filter", _ANY),
    name="resource_name_filter",
    pattern=_one_of(_PATTERNS, "pattern_type_filter", (*_ANY, _SPEAKS)),
    principal="principal_filter",
    operation=_one_of(_OPERATIONS, "operation", _ANY),
    permission=_one_of(_PERMISSIONS, "permission_type", _ANY),
    speaks_of_name=None,
)


def write_acl(rule: Rule) -> metadata_pb2.Acl:
    """One rule."""
    return _RULE.write(rule, host="*")


def read_acl(message: metadata_pb2.Acl) -> Rule:
    """One rule.

    Raises:
        Refused: INVALID_REQUEST: a number is unknown, or a host is named.
    """
    if message.host not in ("", "*"):
        why = f"host {message.host[:60]!r}: rules do not depend on addresses, which certificates do not name; give *"
        raise Refused(ErrorCode.INVALID_REQUEST, why, field="host")
    is_cluster = message.resource_type == metadata_pb2.ACL_RESOURCE_TYPE_CLUSTER
    return _RULE.read(message, name=message.resource_name or (CLUSTER_NAME if is_cluster else ""))


def _read_filter(message: pb.AclFilter) -> messages.AclFilter:
    return _FILTER.read(message, speaks_of_name=message.pattern_type_filter == _SPEAKS)


CREATE = ByName(messages.AlterAcls, pb.CreateAclsRequest, entries=As("creations", read=each_or_refusal(read_acl)))
DELETE = ByName(messages.AlterAcls, pb.DeleteAclsRequest, entries=As("filters", read=each_or_refusal(_read_filter)))
DESCRIBE = ByName(messages.DescribeAcls, pb.DescribeAclsRequest, filter=As("filter", read=_read_filter))

_written: tuple[tuple[Rule, ...], metadata_pb2.AclRules] | None = None


def write_rules_message(rules: tuple[Rule, ...]) -> metadata_pb2.AclRules:
    """All rules. Images repeat the same rules at every change of a topic, so the last message is cached."""
    global _written
    if _written is None or _written[0] is not rules:
        _written = (rules, metadata_pb2.AclRules(acls=map(write_acl, rules)))
    return _written[1]


def write_created(answer: messages.EntriesAltered) -> pb.CreateAclsResponse:
    """The result of each creation."""
    response = pb.CreateAclsResponse()
    for refusal in answer.refusals:
        write_error(response.results.add(), refusal)
    return response


def write_deleted(answer: messages.EntriesAltered) -> pb.DeleteAclsResponse:
    """The rules that each filter deleted."""
    response = pb.DeleteAclsResponse()
    for one, refusal in zip(answer.results, answer.refusals, strict=True):
        rules = () if isinstance(one, Refusal) else one
        write_error(response.filter_results.add(matching_acls=map(write_acl, rules)), refusal)
    return response


def write_exactly(rule: Rule) -> pb.AclFilter:
    """A filter that matches this rule only."""
    wanted = (rule.resource, rule.name, rule.pattern, rule.principal, rule.operation, rule.permission)
    return _FILTER.write(messages.AclFilter(*wanted))
