"""The permission table: a block of docs/SECURITY.md."""

from __future__ import annotations

from strandline.rpc.permissions import EVERYBODY, TABLE


def table() -> str:
    """One row per method: who may call it, and under which condition on the request."""
    rows = ["| service | method | who |", "|---|---|---|"]
    for method, grants in TABLE.items():
        service, _, name = method.strip("/").rpartition("/")
        if grants == EVERYBODY:
            who = "everybody with a certificate of this cluster"
        else:
            who = "; ".join(f"{role} {condition.words}".strip() for role, condition in grants.items())
        rows.append(f"| `{service.removeprefix('strandline.v1.')}` | `{name}` | {who} |")
    return "\n".join(rows) + "\n"
