"""The permissions: a block of docs/SECURITY.md."""

from __future__ import annotations

from strandline.core.permissions import ResourceType
from strandline.rpc.permissions import EVERYBODY, NEEDS, TABLE, Scope


def listed() -> str:
    """Which methods of a service have the same callers: who, under which condition on the request, and what."""
    methods: dict[tuple[str, str], list[str]] = {}
    for method, grants in TABLE.items():
        service, _, name = method.strip("/").rpartition("/")
        if grants == EVERYBODY:
            who = "everybody with a certificate of this cluster"
        else:
            who = "; ".join(f"{role} {condition.words}".strip() for role, condition in grants.items())
        methods.setdefault((service.removeprefix("strandline.v1."), who), []).append(f"`{name}`")
    lines = [f"- `{service}`, {who}: {', '.join(names)}" for (service, who), names in methods.items()]
    return "\n".join(lines) + "\n"


def needed() -> str:
    """What a client's rules must allow for each method, those that need the same together."""
    methods: dict[tuple[str, str], list[str]] = {}
    for method, need in NEEDS.items():
        service, _, name = method.strip("/").rpartition("/")
        either = need.scope is Scope.NAMED and {ResourceType.CLUSTER, ResourceType.TOPIC} <= need.of.keys()
        what = (" or " if either else ", ").join(
            f"`{operation}` of {resource}" for resource, operation in need.of.items()
        )
        scope = {Scope.NAMED: "", Scope.BOTH: "", Scope.SOME: ", of any one", Scope.EVERY: ", of all"}[need.scope]
        said = what + scope if what else "nothing"
        methods.setdefault((service.removeprefix("strandline.v1."), said), []).append(f"`{name}`")
    return "".join(f"- `{service}`, {what}: {', '.join(names)}\n" for (service, what), names in methods.items())
