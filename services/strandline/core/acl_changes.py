"""Adding rules of who may do what, taking them back, and listing them (KIP-140).

Invariants: no two rules say the contrary of exactly the same; nobody loses the permission to change rules by a change
of their own, unless they insist.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from strandline.core.control import messages
from strandline.core.control.draft import Draft
from strandline.core.control.messages import AclsOfOne
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
from strandline.core.types import ACLS


def create_acls(draft: Draft, request: messages.CreateAcls) -> messages.AclsChanged:
    """Add each rule that may be one."""
    known = set(draft.base.acls)
    results = []
    for rule in request.rules:
        refusal = rule if isinstance(rule, Refusal) else draft.below(ACLS, "rules") or _cannot_add(rule, known)
        if isinstance(rule, Rule) and refusal is None:
            is_new = rule not in known
            known.add(rule)
            results.append(AclsOfOne(None, (rule,) if is_new else ()))
        else:
            results.append(AclsOfOne(refusal))
    return _changed(draft, results, known, validate_only=request.validate_only, force=request.force)


def _cannot_add(rule: Rule, known: set[Rule]) -> Refusal | None:
    if (refusal := rule_refusal(rule)) is not None:
        return refusal
    opposite = replace(rule, permission=next(each for each in Permission if each is not rule.permission))
    if opposite in known:
        return Refusal(ErrorCode.INVALID_REQUEST, f"rule '{opposite}' says the contrary; take it back first")
    if rule not in known and len(known) >= MOST_RULES:
        return Refusal(ErrorCode.INVALID_REQUEST, f"there are {MOST_RULES} rules already; take some back first")
    return None


def delete_acls(draft: Draft, request: messages.DeleteAcls) -> messages.AclsChanged:
    """Take back what each filter finds."""
    known = set(draft.base.acls)
    results = []
    for wanted in request.filters:
        if isinstance(wanted, Refusal):
            results.append(AclsOfOne(wanted))
            continue
        found = tuple(rule for rule in draft.base.acls if rule in known and wanted.takes(rule))
        known.difference_update(found)
        none = Refusal(ErrorCode.RESOURCE_NOT_FOUND, "no rule agrees with the filter; `strandline acl list` shows all")
        results.append(AclsOfOne(None if found else none, found))
    return _changed(draft, results, known, validate_only=request.validate_only, force=request.force)


def _changed(
    draft: Draft, results: list[AclsOfOne], after: set[Rule], *, validate_only: bool, force: bool
) -> messages.AclsChanged:
    if not force and (refusal := _locked_out(draft, after)) is not None:
        return messages.AclsChanged(results=tuple(AclsOfOne(each.refusal or refusal) for each in results))
    if not validate_only:
        before = set(draft.base.acls)
        draft.put_acls(sorted(after - before), sorted(before - after))
    return messages.AclsChanged(results=tuple(results))


def _locked_out(draft: Draft, after: Iterable[Rule]) -> Refusal | None:
    """Why the caller, who may change rules now, could not take the change back."""
    caller, needs = draft.permit.caller.principal, draft.permit.caller.needs
    if needs is None or Acls(tuple(after)).of(caller).may(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        return None
    message = f"with this change {caller} could change no rule any more; leave it to an administrator, or give force"
    return Refusal(ErrorCode.POLICY_VIOLATION, message)


def describe_acls(draft: Draft, request: messages.DescribeAcls) -> messages.AclsDescribed:
    """The rules that a filter finds."""
    return messages.AclsDescribed(rules=tuple(filter(request.filter.takes, draft.base.acls)))
