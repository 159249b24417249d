"""Changes and listings of access rules (KIP-140) and client quotas (KIP-546), and the throttle on changes of topics
(KIP-599).

Invariants: each entry is applied whole or refused, independently of the others; no ALLOW and DENY rule agree in
everything else; no principal removes its own permission to change rules, unless it gives ``force``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from strandline.core.control import events, messages
from strandline.core.control.draft import Draft
from strandline.core.coordinator.internal_topics import is_internal
from strandline.core.errors import ErrorCode, Refusal
from strandline.core.permissions import (
    CLUSTER_NAME,
    MOST_RULES,
    Acls,
    Operation,
    Permission,
    ResourceType,
    Rule,
    rule_refusal,
)
from strandline.core.quotas import MOST_QUOTAS, Meters, Quota, QuotaChange, QuotaKey, quota_refusal
from strandline.core.types import ACLS, QUOTAS


def alter_acls(draft: Draft, request: messages.AlterAcls) -> messages.EntriesAltered:
    """Add each valid rule, and remove the rules that each filter matches."""
    after = set(draft.base.acls)
    results = [_altered(draft, after, entry) for entry in request.entries]
    if not request.force and (refusal := _locked_out(draft, after)) is not None:
        results = [each if isinstance(each, Refusal) else refusal for each in results]
    elif not request.validate_only:
        draft.acls = tuple(sorted(after))
    return messages.EntriesAltered(results=tuple(results))


def _altered(draft: Draft, rules: set[Rule], entry: Rule | messages.AclFilter | Refusal) -> Refusal | tuple[Rule, ...]:
    if isinstance(entry, Refusal):
        return entry
    if isinstance(entry, messages.AclFilter):
        found = entry.among(rules)
        rules.difference_update(found)
        why = "no rule agrees with the filter; `strandline acl list` shows all"
        return found or Refusal(ErrorCode.RESOURCE_NOT_FOUND, why)
    # A node of an earlier release would serve every caller, so there are no rules while one may live (C105).
    if (refusal := draft.below(ACLS, "rules") or rule_refusal(entry)) is not None:
        return refusal
    opposite = replace(entry, permission=next(each for each in Permission if each is not entry.permission))
    if opposite in rules:
        return Refusal(ErrorCode.INVALID_REQUEST, f"rule '{opposite}' says the contrary; take it back first")
    if entry in rules:
        return ()
    if len(rules) >= MOST_RULES:
        return Refusal(ErrorCode.INVALID_REQUEST, f"there are {MOST_RULES} rules already; take some back first")
    rules.add(entry)
    return (entry,)


def _locked_out(draft: Draft, after: Iterable[Rule]) -> Refusal | None:
    caller, needs = draft.permit.caller.principal, draft.permit.caller.needs
    # Such a caller could not undo its own mistake. One that needs no rules always can.
    if needs is None or Acls(tuple(after)).of(caller).may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return None
    message = f"with this change {caller} could change no rule any more; leave it to an administrator, or give force"
    return Refusal(ErrorCode.POLICY_VIOLATION, message)


def describe_acls(draft: Draft, request: messages.DescribeAcls) -> messages.AclsDescribed:
    """The rules that a filter matches."""
    return messages.AclsDescribed(rules=tuple(filter(request.filter.takes, draft.base.acls)))


# ---- quotas

_Rates = dict[tuple[str, str], Quota]


def alter_quotas(draft: Draft, request: messages.AlterClientQuotas) -> messages.EntriesAltered:
    """Apply each entry whole or not at all. Removing a quota that does not exist succeeds."""
    rates: _Rates = {(quota.principal, quota.key): quota for quota in draft.base.quotas}
    results: list[Refusal | tuple[Rule, ...]] = []
    for changes in request.entries:
        changed = changes if isinstance(changes, Refusal) else draft.below(QUOTAS, "quotas") or _changed(rates, changes)
        results.append(changed if isinstance(changed, Refusal) else ())
        rates = rates if isinstance(changed, Refusal) else changed
    if not request.validate_only:
        draft.quotas = tuple(sorted(rates.values()))
    return messages.EntriesAltered(results=tuple(results))


def _changed(rates: _Rates, changes: tuple[QuotaChange, ...]) -> _Rates | Refusal:
    rates = dict(rates)
    for principal, key, value in changes:
        if (refusal := quota_refusal(principal, key, value)) is not None:
            return refusal
        rates.pop((principal, key), None)
        if value is not None:
            rates[principal, key] = Quota(principal, QuotaKey(key), value)
    if len(rates) > MOST_QUOTAS:
        return Refusal(ErrorCode.INVALID_REQUEST, f"there would be more than {MOST_QUOTAS} quotas; remove some first")
    return rates


def describe_quotas(draft: Draft, request: messages.DescribeClientQuotas) -> messages.ClientQuotasDescribed:
    """The quotas of the principals asked for, in order."""
    wanted = request.principals
    found = (quota for quota in draft.base.quotas if not wanted or quota.principal in wanted)
    return messages.ClientQuotasDescribed(quotas=tuple(found))


def mutation_refusal(meters: Meters, quotas: tuple[Quota, ...], event: events.RequestArrived) -> Refusal | None:
    """The refusal of a client's whole request to change topics or partitions while it is over its quota (C104)."""
    request = event.request
    meters.know(quotas)
    mutations = messages.CreateTopics | messages.DeleteTopics | messages.CreatePartitions
    if event.principal is None or not isinstance(request, mutations):
        return None
    if isinstance(request, messages.CreateTopics) and all(is_internal(new.name) for new in request.topics):
        # Nodes create these, and without TLS a node looks like a client.
        return None
    wait_ms = meters.muted_ms(event.principal, (QuotaKey.CONTROLLER_MUTATION_RATE,), event.now_ms)
    if not wait_ms:
        return None
    said = f"{event.principal} changes more partitions than its {QuotaKey.CONTROLLER_MUTATION_RATE}"
    message = f"{said}; nothing was done, ask again in {wait_ms / 1000:g} s"
    return Refusal(ErrorCode.THROTTLING_QUOTA_EXCEEDED, message, throttle_time_ms=wait_ms)
