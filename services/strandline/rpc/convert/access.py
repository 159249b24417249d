"""Access rules and quotas of clients on the wire, in both directions.

Invariant: a number or key that this release does not know is refused, and never read as another one. Metadata with such
a rule or quota is rejected as a whole: a node keeps those that it knew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeVar

from strandline.core.control import messages
from strandline.core.errors import ErrorCode, Refusal, Refused
from strandline.core.permissions import CLUSTER_NAME, EVERY_CLIENT, Operation, Pattern, Permission, ResourceType, Rule
from strandline.core.quotas import Quota, QuotaChange, QuotaKey, quota_refusal
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


CREATE_ACLS = ByName(messages.AlterAcls, pb.CreateAclsRequest, entries=As("creations", read=each_or_refusal(read_acl)))
DELETE_ACLS = ByName(
    messages.AlterAcls, pb.DeleteAclsRequest, entries=As("filters", read=each_or_refusal(_read_filter))
)
DESCRIBE_ACLS = ByName(messages.DescribeAcls, pb.DescribeAclsRequest, filter=As("filter", read=_read_filter))

_written: tuple[tuple[Rule, ...], metadata_pb2.AclRules] | None = None


def write_rules_message(rules: tuple[Rule, ...]) -> metadata_pb2.AclRules:
    """All rules. Images repeat the same rules at every change of a topic, so the last message is cached."""
    global _written
    if _written is None or _written[0] is not rules:
        _written = (rules, metadata_pb2.AclRules(acls=map(write_acl, rules)))
    return _written[1]


def write_acls_created(answer: messages.EntriesAltered) -> pb.CreateAclsResponse:
    """The result of each creation."""
    response = pb.CreateAclsResponse()
    for refusal in answer.refusals:
        write_error(response.results.add(), refusal)
    return response


def write_acls_deleted(answer: messages.EntriesAltered) -> pb.DeleteAclsResponse:
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


# ---- quotas
# A quota is of one principal, or of every one without its own.

_USER = "user"


def _entity(principal: str) -> metadata_pb2.ClientQuotaEntity:
    name = None if principal == EVERY_CLIENT else principal
    return metadata_pb2.ClientQuotaEntity(entity_type=_USER, entity_name=name)


def _principal(entity: Sequence[metadata_pb2.ClientQuotaEntity]) -> str:
    if len(entity) != 1 or entity[0].entity_type not in ("", _USER):
        said = "entity is not one of entity_type user; a quota is of one principal, or of every one without its own"
        raise Refused(ErrorCode.INVALID_REQUEST, said, field="entity")
    return entity[0].entity_name if entity[0].HasField("entity_name") else EVERY_CLIENT


def write_quotas(quotas: Iterable[Quota]) -> list[metadata_pb2.ClientQuotaEntry]:
    """One entry for each principal, with its quotas."""
    return [
        metadata_pb2.ClientQuotaEntry(
            entity=[_entity(principal)],
            values=[metadata_pb2.ClientQuotaValue(key=quota.key, value=quota.value) for quota in own],
        )
        for principal, own in groupby(quotas, lambda quota: quota.principal)
    ]


def read_quotas(entries: Iterable[metadata_pb2.ClientQuotaEntry]) -> tuple[Quota, ...]:
    """Quotas, in order.

    Raises:
        Refused: INVALID_REQUEST: a quota is of a later release, which needs a later feature level.
    """
    found = []
    for entry in entries:
        principal = _principal(entry.entity)
        for said in entry.values:
            if (refusal := quota_refusal(principal, said.key, said.value)) is not None:
                raise Refused.of(refusal)
            found.append(Quota(principal, QuotaKey(said.key), said.value))
    return tuple(found)


def _read_alteration(entry: pb.ClientQuotaAlteration) -> tuple[QuotaChange, ...]:
    principal = _principal(entry.entity)
    return tuple(QuotaChange(principal, op.key, None if op.remove else op.value) for op in entry.ops)


ALTER_QUOTAS = ByName(
    messages.AlterClientQuotas,
    pb.AlterClientQuotasRequest,
    entries=As("entries", read=each_or_refusal(_read_alteration)),
)
DESCRIBE_QUOTAS = ByName(
    messages.DescribeClientQuotas,
    pb.DescribeClientQuotasRequest,
    principals=As("components", read=lambda given: tuple(_principal([each]) for each in given)),
)


def write_quotas_altered(
    message: pb.AlterClientQuotasRequest, answer: messages.EntriesAltered
) -> pb.AlterClientQuotasResponse:
    """The result of each entry."""
    response = pb.AlterClientQuotasResponse()
    for entry, refusal in zip(message.entries, answer.refusals, strict=True):
        write_error(response.entries.add(entity=entry.entity), refusal)
    return response


def alter_quotas_request(
    cluster_id: str | None, changes: Iterable[QuotaChange], *, validate_only: bool
) -> pb.AlterClientQuotasRequest:
    """A client's request to change quotas; each change is an entry of its own."""
    request = pb.AlterClientQuotasRequest(cluster_id=cluster_id, validate_only=validate_only)
    for principal, key, value in changes:
        request.entries.add(
            entity=[_entity(principal)], ops=[pb.ClientQuotaOp(key=key, value=value or 0, remove=value is None)]
        )
    return request
