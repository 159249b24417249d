"""Setting quotas of clients, removing and listing them (KIP-546), and who must wait before topics change (KIP-599)."""

from __future__ import annotations

from strandline.core.control import events, messages
from strandline.core.control.draft import Draft
from strandline.core.coordinator.internal_topics import is_internal
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.quotas import MOST_QUOTAS, Meters, Quota, QuotaChange, QuotaKey, quota_refusal
from strandline.core.types import QUOTAS

Rates = dict[tuple[str, QuotaKey], float]


def alter_quotas(draft: Draft, request: messages.AlterClientQuotas) -> messages.ClientQuotasAltered:
    """Change what each entry says, all of it or nothing. What is not there is removed already."""
    before: Rates = {(quota.principal, quota.key): quota.value for quota in draft.base.quotas}
    after, refusals = dict(before), []
    for changes in request.entries:
        changed = changes if isinstance(changes, Refusal) else draft.below(QUOTAS, "quotas") or _changed(after, changes)
        refusals.append(changed if isinstance(changed, Refusal) else None)
        after = after if isinstance(changed, Refusal) else changed
    if not request.validate_only:
        was, is_now = (
            {Quota(principal, key, value) for (principal, key), value in rates.items()} for rates in (before, after)
        )
        draft.put_quotas(sorted(is_now - was), sorted(was - is_now))
    return messages.ClientQuotasAltered(refusals=tuple(refusals))


def _changed(rates: Rates, changes: tuple[QuotaChange, ...]) -> Rates | Refusal:
    rates = dict(rates)
    for principal, key, value in changes:
        if (refusal := quota_refusal(principal, key, value)) is not None:
            return refusal
        rates.pop((principal, QuotaKey(key)), None)
        if value is not None:
            rates[principal, QuotaKey(key)] = value
    if len(rates) > MOST_QUOTAS:
        return Refusal(ErrorCode.INVALID_REQUEST, f"there would be more than {MOST_QUOTAS} quotas; remove some first")
    return rates


def describe_quotas(draft: Draft, request: messages.DescribeClientQuotas) -> messages.ClientQuotasDescribed:
    """The quotas of those who were asked for, in order."""
    wanted = request.principals
    found = (quota for quota in draft.base.quotas if not wanted or quota.principal in wanted)
    return messages.ClientQuotasDescribed(quotas=tuple(found))


def mutation_refusal(meters: Meters, quotas: tuple[Quota, ...], event: events.RequestArrived) -> Refusal | None:
    """Why a client's topics or partitions are not created or deleted now; nothing of them is (C104)."""
    request = event.request
    meters.know(quotas)
    if event.principal is None or not isinstance(
        request, messages.CreateTopics | messages.DeleteTopics | messages.CreatePartitions
    ):
        return None
    if isinstance(request, messages.CreateTopics) and all(is_internal(new.name) for new in request.topics):
        # Nodes ask for these, and without TLS nobody knows that it is a node.
        return None
    wait_ms = meters.muted_ms(event.principal, (QuotaKey.CONTROLLER_MUTATION_RATE,), event.now_ms)
    if not wait_ms:
        return None
    said = f"{event.principal} changes more partitions than its {QuotaKey.CONTROLLER_MUTATION_RATE}"
    message = f"{said}; nothing was done, ask again in {wait_ms / 1000:g} s"
    return Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message, throttle_time_ms=wait_ms)
