"""The table of metrics as a page: a block of `docs/METRICS.md`.

Invariant: the page says nothing of a metric that `families` does not say.
"""

from __future__ import annotations

from strandline.metrics.families import FAMILIES, Family, Role

_TITLES = {
    Role.REPLICA: "A data node",
    Role.CONTROLLER: "The controller",
    Role.ANALYTICS: "The analytics server",
    Role.CONSOLE: "The console",
}
_HEAD = "| metric | type | labels | unit | what it says | Kafka's nearest |\n|---|---|---|---|---|---|\n"


def tables() -> str:
    """One table per role."""
    return "".join(_section(role) for role in Role)


def _section(role: Role) -> str:
    rows = "".join(_row(family) for family in FAMILIES if role in family.roles)
    return f"## {_TITLES[role]}\n\n{_HEAD}{rows}\n"


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    text = f"{family.help} Only with `metrics_per_partition`." if family.per_partition else family.help
    kafka = f"`{family.kafka}`" if family.kafka else ""
    return f"| `{family.full_name}` | {family.kind} | {labels} | {family.unit} | {text} | {kafka} |\n"
