"""The table of metrics as a page: a block of `docs/METRICS.md`.

Invariant: the page says nothing of a metric that `families` does not say.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.metrics.families import FAMILIES, Family, Role

_TITLES = {
    Role.REPLICA: "A data node",
    Role.CONTROLLER: "The controller",
    Role.ANALYTICS: "The analytics server",
    Role.CONSOLE: "The console",
}
_HEAD = "| metric | type | labels | what it says | Kafka's nearest |\n|---|---|---|---|---|\n"


def tables() -> str:
    """One table per role, after that of the metrics which several processes have."""
    shared = [family for family in FAMILIES if len(family.roles) > 1]
    parts = [_section("Several processes", shared)]
    parts += [_section(_TITLES[role], [one for one in FAMILIES if set(one.roles) == {role}]) for role in Role]
    return "".join(parts)


def _section(title: str, families: Sequence[Family]) -> str:
    rows = "".join(map(_row, families))
    return f"## {title}\n\n{_HEAD}{rows}\n" if rows else ""


def _row(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    text = f"{family.help} Only with `metrics_per_partition`." if family.per_partition else family.help
    if len(family.roles) > 1:
        text += f" Of {', '.join(_TITLES[role].lower() for role in family.roles)}."
    kafka = f"`{family.kafka}`" if family.kafka else ""
    return f"| `{family.full_name}` | {family.kind} | {labels} | {text} | {kafka} |\n"
