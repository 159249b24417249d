"""Mutants of permissions, quotas, tokens and the audit (C102 to C109): what clients may do, and what is recorded.

No history of a simulated cluster has clients with rules, so each is for the unit tests that it names.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any
from unittest.mock import patch

from mutants.mutant import Real, mutant

from strandline.core.audit import MOST_KINDS, MergedRefusals
from strandline.core.errors import Refused
from strandline.core.permissions import Acls, Matcher, Operation, ResourceType, Rule, _Names
from strandline.core.state_events import Audit
from strandline.core.token_bucket import TokenBucket
from strandline.rpc import permitted, tokens
from strandline.rpc.authorization import PermissionInterceptor

_MATCHER = "tests/core/test_permissions.py::test_the_matcher_answers_as_one_that_looks_at_every_rule"
_T66 = "tests/core/test_permissions.py::test_t66"
_OPEN_STREAM = "tests/security/test_rules_enforced.py::test_a_rule_that_is_taken_back_stops_a_fetch_that_waits"
_T62 = "tests/core/test_quotas.py::test_t62"
_BOUND = "tests/core/test_quotas.py::test_no_more_is_served_than_rate_and_burst_allow"
_COUNTED = "tests/rpc/test_throttling.py::test_quotas_are_about_clients_alone"
_WRONG_TOKENS = "tests/security/test_tokens.py::test_a_wrong_token_is_refused_by_rule"
_MERGED = "tests/core/test_told_changes.py::test_kinds_beyond_the_bound_are_counted_together"


@mutant(Matcher, "may", tests=_T66, layers="tests")
def _whatever_is_denied(real: Real, matcher: Matcher, operation: Operation, resource: ResourceType, name: str) -> bool:
    """141: a grant counts before a denial (C105; KIP-11).

    What one rule allows is allowed, also where another one denies it.
    """
    return name in matcher._compile(operation, resource)[0]


@mutant(_Names, "covers", tests=_T66, layers="tests")
def _by_its_whole_name(real: Real, names: _Names, name: str) -> bool:
    """142: a prefix is a name (C105; KIP-290).

    A rule with PREFIXED is about the resource of exactly this name.
    """
    return name in names._rules or "" in names._rules


@mutant(Matcher, "_compile", tests=_MATCHER, layers="tests", pure=False)
def _of_any_kind(real: Real, matcher: Matcher, operation: Operation, resource: ResourceType) -> Any:
    """143: a name is a name, whatever it is of (C105).

    A grant on a topic is one on the group of the same name, too.
    """

    def of_this_kind(rule: Rule) -> Rule:
        if rule.resource is not resource:
            real.differs()
        return replace(rule, resource=resource)

    if (operation, resource) not in matcher._names:
        matcher._names[operation, resource] = real(Matcher(map(of_this_kind, matcher._rules)), operation, resource)
    return matcher._names[operation, resource]


@mutant(PermissionInterceptor, "_begin", tests=_OPEN_STREAM, layers="tests", pure=False)
def _as_at_its_beginning(
    real: Real, interceptor: PermissionInterceptor, method: str, context: Any, *, is_stream: bool
) -> Any:
    """144: an open stream keeps what was taken back (C106).

    A stream is checked by the rules that there were when it began, for as long as it lasts.
    """
    acls = interceptor._acls
    if acls is None:
        return real(interceptor, method, context, is_stream=is_stream)
    before = acls()

    def still() -> Acls:
        if acls() is not before:
            real.differs()
        return before

    with patch.object(interceptor, "_acls", still):
        return real(interceptor, method, context, is_stream=is_stream)


@mutant(TokenBucket, "_refill", tests=_T62, layers="tests", pure=False)
def _never_again(real: Real, bucket: TokenBucket, now_ms: int) -> None:
    """145: a bucket is never filled again (C103).

    A principal that has used its burst stays in debt, and is muted longer with every request.
    """
    if now_ms > bucket._at_ms:
        real.differs()
        bucket._at_ms = now_ms


@mutant(TokenBucket, "_refill", tests=_BOUND, layers="tests", pure=False)
def _without_an_end(real: Real, bucket: TokenBucket, now_ms: int) -> None:
    """146: a bucket has no bound (C103).

    Who has used nothing for an hour may use the rate of an hour at once.
    """
    with_all = bucket._tokens + max(0, now_ms - bucket._at_ms) * bucket._rate
    real(bucket, now_ms)
    if with_all > bucket._tokens:
        real.differs()
        bucket._tokens = with_all


@mutant(permitted, "principal_of_call", tests=_COUNTED, layers="tests")
def _of_everybody(real: Real) -> str | None:
    """147: quotas are about everybody (C102; KIP-13).

    The default of clients holds for what replicas fetch and for administrators, too.
    """
    identity = permitted.IDENTITY.get()
    principal: str | None = real() if identity is None else identity.principal
    return principal


@mutant(tokens.Tokens, "_verify", tests=_WRONG_TOKENS, layers="tests", pure=False)
def _whenever(real: Real, verifying: tokens.Tokens, token: str) -> Any:
    """148: a token has no end (C108).

    One that has expired is believed, however long ago that was.
    """
    try:
        return real(verifying, token)
    except Refused as refused:
        if refused.refusal.rule != "TOKEN_EXPIRED":
            raise
    real.differs()
    with patch.object(tokens, "LEEWAY_S", inf):
        return real(verifying, token)


@mutant(MergedRefusals, "take", tests=_MERGED, layers="tests", pure=False)
def _no_more_kinds(real: Real, merged: MergedRefusals, event: Audit) -> None:
    """149: refusals without a place are dropped (C109).

    Beyond a hundred kinds within a second, an audit says nothing of the others.
    """
    kind = (event.principal, event.method, event.resource_type, event.rule)
    if len(merged._kinds) >= MOST_KINDS and kind not in merged._kinds:
        real.differs()
        return
    real(merged, event)
