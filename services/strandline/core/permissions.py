"""Decides access: rules of principals on topics, groups, transactional ids and the cluster (C105, KIP-11).

Invariant: nothing is permitted unless a rule allows it, and a rule that denies overrides every rule that allows, in any
order of the rules. What is not permitted and what does not exist are refused in the same words.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import astuple, dataclass, field
from enum import StrEnum
from typing import NamedTuple

from strandline.core.errors import ErrorCode, Outcome, Refusal
from strandline.core.state_events import Audit

MOST_RULES = 10_000
# As long as the name of a topic may be.
LONGEST_NAME = 249
EVERY_NAME = "*"
"""The name of a literal rule that matches every name (Kafka's wildcard)."""
CLUSTER_NAME = "kafka-cluster"
"""The only resource of type CLUSTER; the name is Kafka's."""
EVERY_CLIENT = "client/*"
"""Every client, identified by a certificate or by a token."""
LONGEST_SUBJECT = 255
# Not `ALIAS:*`: in a rule that denies, it would seem to mean every token of the issuer.
_PRINCIPAL = re.compile(
    rf"client/(\*|[A-Za-z0-9._-]{{1,128}})|[a-z0-9][a-z0-9-]{{0,31}}:(?!\*$)(?! )[^\n]{{1,{LONGEST_SUBJECT}}}(?<! )"
)


class ResourceType(StrEnum):
    """The types of resources that rules are about."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactional-id"
    CLUSTER = "cluster"


class Operation(StrEnum):
    """What can be done to a resource; names as in Kafka."""

    ALL = "ALL"
    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"


class Permission(StrEnum):
    """Whether a rule allows or denies."""

    ALLOW = "ALLOW"
    DENY = "DENY"


class Pattern(StrEnum):
    """How a rule's name is matched."""

    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


_O, _R = Operation, ResourceType

OPERATIONS: Mapping[ResourceType, frozenset[Operation]] = {
    _R.TOPIC: frozenset(_O),
    _R.GROUP: frozenset({_O.ALL, _O.READ, _O.DELETE, _O.DESCRIBE}),
    _R.TRANSACTIONAL_ID: frozenset({_O.ALL, _O.WRITE, _O.DESCRIBE}),
    _R.CLUSTER: frozenset({_O.ALL, _O.CREATE, _O.ALTER, _O.DESCRIBE}),
}
"""The operations that can be granted on each type of resource."""

_IMPLIED_BY: Mapping[Operation, frozenset[Operation]] = {
    _O.DESCRIBE: frozenset({_O.READ, _O.WRITE, _O.DELETE, _O.ALTER}),
    _O.DESCRIBE_CONFIGS: frozenset({_O.ALTER_CONFIGS}),
}

CODES: Mapping[ResourceType, ErrorCode] = {
    _R.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    _R.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    _R.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    _R.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


@dataclass(frozen=True, slots=True, order=True)
class Rule:
    """One rule, which allows or denies."""

    principal: str
    """See `is_principal`."""
    permission: Permission
    operation: Operation
    resource: ResourceType
    pattern: Pattern
    name: str

    def __str__(self) -> str:
        return " ".join(astuple(self))

    def matches(self, name: str) -> bool:
        """Whether the rule applies to this name."""
        return name.startswith(self.name) if self.pattern is Pattern.PREFIXED else self.name in (name, EVERY_NAME)

    def decides(self, operation: Operation) -> bool:
        """Whether the rule applies to this operation."""
        # As in Kafka: who may read a topic has to see it, but a denied READ alone does not hide it.
        implied_by = _IMPLIED_BY.get(operation, ()) if self.permission is Permission.ALLOW else ()
        return self.operation in (operation, Operation.ALL, *implied_by)


# ---- rule_refusal
# Which rules are accepted.


def is_principal(text: str) -> bool:
    """Whether this is `EVERY_CLIENT`, ``client/`` and the id in a certificate, or a token's ``ALIAS:SUBJECT``."""
    return text.isprintable() and _PRINCIPAL.fullmatch(text) is not None


def principal_refusal(principal: str) -> Refusal | None:
    """Why this is not a valid principal of a rule or quota; None if it is."""
    if is_principal(principal):
        return None
    said = f"principal {principal[:60]!r} is not client/ID, {EVERY_CLIENT} or ALIAS:SUBJECT"
    said += "; give the id in the certificate, or the issuer's alias and the subject of the token"
    return Refusal(ErrorCode.INVALID_REQUEST, f"{said}; nodes, controllers and administrators need no rules")


def rule_refusal(rule: Rule) -> Refusal | None:
    """Why this is not a valid rule; None if it is."""
    if (refusal := principal_refusal(rule.principal)) is not None:
        return refusal
    if not rule.name or len(rule.name) > LONGEST_NAME or not rule.name.isprintable() or not rule.name.strip():
        said = f"resource_name {rule.name[:60]!r} has control characters, is blank or has {len(rule.name)} characters"
        return Refusal(ErrorCode.INVALID_REQUEST, f"{said}; give 1 to {LONGEST_NAME} that can be printed")
    if rule.operation not in OPERATIONS[rule.resource]:
        known = ", ".join(sorted(OPERATIONS[rule.resource]))
        said = f"operation {rule.operation} is nothing that is done to a {rule.resource}; give one of {known}"
        return Refusal(ErrorCode.INVALID_REQUEST, said)
    if rule.resource is ResourceType.CLUSTER and (rule.name, rule.pattern) != (CLUSTER_NAME, Pattern.LITERAL):
        return Refusal(ErrorCode.INVALID_REQUEST, f"the cluster is named {CLUSTER_NAME}, LITERAL; give that")
    return None


# ---- compiled
# The rules of one principal, compiled so that the cost of a check does not grow with their number.
#
# Invariant: the answer is the same as from checking every rule; a property test compares the two.


class _Names:
    """The names that are matched by rules of one operation and one permission."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._literals: dict[str, Rule] = {}
        self._rules: dict[str, Rule] = {}
        for rule in rules:
            if rule.pattern is Pattern.PREFIXED or rule.name == EVERY_NAME:
                # Every name begins with the empty prefix, so the wildcard is one more prefix.
                self._rules[rule.name if rule.pattern is Pattern.PREFIXED else ""] = rule
            else:
                self._literals[rule.name] = rule
        # None of them begins with another one, so only the last one that sorts before a name can be its prefix.
        self._prefixes: list[str] = []
        for prefix in sorted(self._rules):
            if not self._prefixes or not prefix.startswith(self._prefixes[-1]):
                self._prefixes.append(prefix)

    def __contains__(self, name: str) -> bool:
        return name in self._literals or self.covers(name)

    def __bool__(self) -> bool:
        return bool(self._literals or self._prefixes)

    def covers(self, prefix: str) -> bool:
        """Whether every name with this prefix is matched."""
        index = bisect_right(self._prefixes, prefix)
        return index > 0 and prefix.startswith(self._prefixes[index - 1])

    def rule_for(self, name: str) -> Rule | None:
        """A rule that matches the name; None if there is none."""
        if name in self._literals or not self.covers(name):
            return self._literals.get(name)
        return self._rules[self._prefixes[bisect_right(self._prefixes, name) - 1]]

    def has_some_outside(self, other: _Names) -> bool:
        """Whether at least one name is matched here and not by ``other``."""
        return any(name not in other for name in self._literals) or not all(map(other.covers, self._prefixes))


class Matcher:
    """Answers what one principal may do."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = tuple(rules)
        self._names: dict[tuple[Operation, ResourceType], tuple[_Names, _Names]] = {}

    def may(self, operation: Operation, resource: ResourceType, name: str) -> bool:
        """Whether the principal may do this to the resource of this name."""
        allowed, denied = self._names.get((operation, resource)) or self._compile(operation, resource)
        return name in allowed and name not in denied

    def rule_for(self, operation: Operation, resource: ResourceType, name: str) -> Rule | None:
        """A rule that decides this; None if no rule matches, which denies it."""
        allowed, denied = self._compile(operation, resource)
        return denied.rule_for(name) or allowed.rule_for(name)

    def may_to_some(self, operation: Operation, resource: ResourceType) -> bool:
        """Whether there is at least one name for which the principal may do this."""
        allowed, denied = self._compile(operation, resource)
        return allowed.has_some_outside(denied)

    def may_to_all(self, operation: Operation, resource: ResourceType) -> bool:
        """Whether the principal may do this to every resource of the type, including future ones."""
        allowed, denied = self._compile(operation, resource)
        return allowed.covers("") and not denied

    def _compile(self, operation: Operation, resource: ResourceType) -> tuple[_Names, _Names]:
        key = (operation, resource)
        if key not in self._names:
            of = [rule for rule in self._rules if rule.resource is resource and rule.decides(operation)]
            allowed, denied = (_Names(rule for rule in of if rule.permission is each) for each in Permission)
            self._names[key] = allowed, denied
        return self._names[key]


class Acls:
    """All rules of a cluster. When rules change, a new instance with new matchers replaces it."""

    def __init__(self, rules: tuple[Rule, ...] = ()) -> None:
        self.rules = rules
        self._by_principal: dict[str, list[Rule]] = {EVERY_CLIENT: []}
        for rule in rules:
            self._by_principal.setdefault(rule.principal, []).append(rule)
        self._matchers: dict[str, Matcher] = {}

    def of(self, principal: str) -> Matcher:
        """The matcher of a principal; principals without rules of their own share one."""
        # One matcher for all of these: memory grows with rules, not with callers.
        if principal not in self._by_principal:
            principal = EVERY_CLIENT
        if principal not in self._matchers:
            whose = {principal, EVERY_CLIENT}
            self._matchers[principal] = Matcher(rule for each in whose for rule in self._by_principal[each])
        return self._matchers[principal]


# ---- permits
# What one call may access: its caller, and what its method needs.

Needs = Mapping[ResourceType, Operation]


ANONYMOUS = "anonymous"
"""The principal of a caller without an identity."""
BY_ROLE = "role"
"""The audit's ``rule`` where no access rule decided, but the table of what each role may call."""


class Caller(NamedTuple):
    """Who calls a method, and from where; ``needs``: what rules must allow, None if the caller needs no rules."""

    principal: str
    needs: Needs | None
    method: str = ""
    peer: str = ""


def audit_of(caller: Caller, resource: str | None, name: str | None, outcome: str, rule: str | None) -> Audit:
    """An audit event: what a caller did, or was refused."""
    method = caller.method.removeprefix("/strandline.v1.")
    if name is not None:
        # The name may be chosen by a caller that is refused.
        name = "".join(each if each.isprintable() else "?" for each in name[:LONGEST_NAME])
    return Audit(caller.principal, caller.peer, method, resource, name, outcome, rule)


Tell = Callable[[Audit], None]


@dataclass(frozen=True, slots=True)
class Permit:
    """What a caller may access under the current rules: everything if it needs none. ``tell`` receives each refusal."""

    caller: Caller
    acls: Acls = field(default_factory=Acls)
    tell: Tell = field(default=lambda _: None, compare=False)

    @property
    def needs(self) -> Needs:
        """What rules must allow; empty if the caller needs no rules."""
        return self.caller.needs or {}

    def may(self, resource: ResourceType, name: str) -> bool:
        """Whether the call may access this."""
        operation = self.needs.get(resource)
        return operation is None or self.acls.of(self.caller.principal).may(operation, resource, name)

    def refusal(self, resource: ResourceType, name: str) -> Refusal | None:
        """Why the call may not access this; None if it may."""
        if self.may(resource, name):
            return None
        operation = self.needs[resource]
        self.refused(operation, resource, name)
        is_cluster = resource is ResourceType.CLUSTER
        what = (
            "the cluster" if is_cluster else f"{resource} '{name}', or there is none of that name that it may know of"
        )
        return Refusal(CODES[resource], f"{self.caller.principal} may not {operation} {what}", Outcome.NOT_APPENDED)

    def topic_refusal(self, name: str, topic_id: str, found: str) -> Refusal | None:
        """Why the call may not access a topic, named by ``name``, ``topic_id`` or both; ``found`` is its name."""
        if ResourceType.TOPIC not in self.needs:
            return None
        # An id whose topic the caller may not see is answered like one that does not exist, or it would show that the
        # topic exists.
        if topic_id and not (found and self.sees(ResourceType.TOPIC, found)):
            if found:
                self.refused(Operation.DESCRIBE, ResourceType.TOPIC, found)
            return Refusal(ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {topic_id}", Outcome.NOT_APPENDED)
        refusal = self.refusal(ResourceType.TOPIC, name) if name else None
        return refusal or (self.refusal(ResourceType.TOPIC, found) if found and found != name else None)

    def sees(self, resource: ResourceType, name: str) -> bool:
        """Whether the caller may know that this exists."""
        needs, principal = self.caller.needs, self.caller.principal
        return needs is None or self.acls.of(principal).may(Operation.DESCRIBE, resource, name)

    def refused(self, operation: Operation, resource: ResourceType, name: str) -> None:
        """Report that the call was refused this."""
        rule = self.acls.of(self.caller.principal).rule_for(operation, resource, name)
        self.tell(audit_of(self.caller, resource, name, "REFUSED", str(rule) if rule else None))

    def rule_of_change(self, resource: str, name: str) -> str | None:
        """The rule on the resource or on the cluster that allowed the call to change this; None if no rule did."""
        for kind, named in ((resource, name), (ResourceType.CLUSTER, CLUSTER_NAME)):
            if isinstance(kind, ResourceType) and kind in self.needs and self.may(kind, named):
                return str(self.acls.of(self.caller.principal).rule_for(self.needs[kind], kind, named))
        return None


EVERYTHING = Permit(Caller(ANONYMOUS, None))
"""The permit of a call that needs no rules."""
