"""Quotas of clients on the wire, in both directions.

Invariant: a key that this release does not know is refused, and never read as another one. Metadata with such a quota
is rejected as a whole: a node keeps the quotas that it knew.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from strandline.core.control import messages
from strandline.core.errors import ErrorCode, Refused
from strandline.core.permissions import EVERY_CLIENT
from strandline.core.quotas import Quota, QuotaChange, QuotaKey, quota_refusal
from strandline.rpc.convert.acls import each_or_refusal
from strandline.rpc.convert.by_name import As, ByName
from strandline.rpc.convert.errors import write_error
from strandline.v1 import controller_service_pb2 as pb, metadata_pb2

_USER = "user"


def _entity(principal: str) -> metadata_pb2.ClientQuotaEntity:
    name = None if principal == EVERY_CLIENT else principal
    return metadata_pb2.ClientQuotaEntity(entity_type=_USER, entity_name=name)


def _principal(entity: Sequence[metadata_pb2.ClientQuotaEntity]) -> str:
    if len(entity) != 1 or entity[0].entity_type not in ("", _USER):
        said = "entity is not one of entity_type user; a quota is of one principal, or of every one without its own"
        raise Refused(ErrorCode.INVALID_REQUEST, said, field="entity")
    return entity[0].entity_name if entity[0].HasField("entity_name") else EVERY_CLIENT


def write_entries(quotas: Iterable[Quota]) -> list[metadata_pb2.ClientQuotaEntry]:
    """One entry for each principal, with its quotas."""
    return [
        metadata_pb2.ClientQuotaEntry(
            entity=[_entity(principal)],
            values=[metadata_pb2.ClientQuotaValue(key=quota.key, value=quota.value) for quota in own],
        )
        for principal, own in groupby(quotas, lambda quota: quota.principal)
    ]


def read_entries(entries: Iterable[metadata_pb2.ClientQuotaEntry]) -> tuple[Quota, ...]:
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


ALTER = ByName(
    messages.AlterClientQuotas,
    pb.AlterClientQuotasRequest,
    entries=As("entries", read=each_or_refusal(_read_alteration)),
)
DESCRIBE = ByName(
    messages.DescribeClientQuotas,
    pb.DescribeClientQuotasRequest,
    principals=As("components", read=lambda given: tuple(_principal([each]) for each in given)),
)


def write_altered(
    message: pb.AlterClientQuotasRequest, answer: messages.EntriesAltered
) -> pb.AlterClientQuotasResponse:
    """The result of each entry."""
    response = pb.AlterClientQuotasResponse()
    for entry, refusal in zip(message.entries, answer.refusals, strict=True):
        write_error(response.entries.add(entity=entry.entity), refusal)
    return response


def alter_request(
    cluster_id: str | None, changes: Iterable[QuotaChange], *, validate_only: bool
) -> pb.AlterClientQuotasRequest:
    """A client's request to change quotas; each change is an entry of its own."""
    request = pb.AlterClientQuotasRequest(cluster_id=cluster_id, validate_only=validate_only)
    for principal, key, value in changes:
        request.entries.add(
            entity=[_entity(principal)], ops=[pb.ClientQuotaOp(key=key, value=value or 0, remove=value is None)]
        )
    return request
