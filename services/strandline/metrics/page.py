"""The lists of metrics for a page: a block of `docs/METRICS.md`.

Invariant: everything that the page says about a metric is in `families`.
"""

from __future__ import annotations

from itertools import groupby

from strandline.metrics.families import FAMILIES, Family, MetricType, Role

_TITLES = {
    Role.REPLICA: "data node",
    Role.CONTROLLER: "controller",
    Role.ANALYTICS: "analytics server",
    Role.CONSOLE: "console",
}


def lists() -> str:
    """One list for each set of processes that share metrics; lists for several processes come first."""
    ordered = sorted(FAMILIES, key=_place)
    return "".join(f"## {title}\n\n{''.join(map(_line, found))}\n" for title, found in groupby(ordered, _title))


def _place(family: Family) -> tuple[bool, int, bool]:
    """A key that sorts metrics by the place of their list on the page."""
    return len(family.roles) == 1, list(Role).index(family.roles[0]) - len(family.roles), family.per_partition


def _title(family: Family) -> str:
    title = ", ".join(_TITLES[role] for role in family.roles).capitalize()
    return f"{title}, with `metrics_per_partition`" if family.per_partition else title


def _line(family: Family) -> str:
    labels = f"{{{','.join(family.labels)}}}" if family.labels else ""
    text = f"Histogram: {family.help}" if family.kind is MetricType.HISTOGRAM else family.help
    kafka = f" Kafka: `{family.kafka}`." if family.kafka else ""
    return f"- `{family.full_name}{labels}`: {text}{kafka}\n"
