"""The permissions: a block of docs/SECURITY.md."""

from __future__ import annotations

from strandline.rpc.permissions import EVERYBODY, TABLE


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
