"""The files of deploy/monitoring, in a form that tests can query: rules, queries, and the metrics they name."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from strandline.metrics.families import FAMILIES, MetricType

ROOT = Path(__file__).resolve().parents[2]
MONITORING = ROOT / "deploy" / "monitoring"
ALERTS = MONITORING / "alerts.yaml"

NOT_OURS = {"up", "process_cpu_seconds_total", "process_resident_memory_bytes"}
"""Metrics that Prometheus and its library give every process."""

_NAME = re.compile(r"\b(?:strandline|process|python)_[a-z_]+\b|\bup\b")
_SUFFIX = re.compile(r"_(?:bucket|sum|count)$")
_SPREADS = {family.full_name for family in FAMILIES if family.kind is MetricType.HISTOGRAM}

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is not installed; on Debian: apt-get install prometheus"
)
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed; on Debian: apt-get install prometheus"
)


def rules() -> list[dict[str, Any]]:
    """Every alert rule."""
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def dashboard() -> Any:
    """The dashboard as Grafana would read it."""
    return json.loads((MONITORING / "dashboard.json").read_text())


def queries() -> Iterator[tuple[str, str]]:
    """Every query of the dashboard with the title of its panel."""
    board = dashboard()
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for note in board["annotations"]["list"]:
        yield note["name"], note["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["label"], variable["query"]["query"].removeprefix("label_values(").rpartition(",")[0]


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression names, histograms by their own name; quoted text and labels are excluded."""
    bare = re.sub(r'"[^"]*"', "", expression)
    names = set(_NAME.findall(bare))
    return {short if (short := _SUFFIX.sub("", name)) in _SPREADS else name for name in names}


def filled(expression: str) -> str:
    """A query with its variables set, as Grafana sends it."""
    for name, value in {"$__rate_interval": "10s", "$job": ".*", "$instance": ".*", "$topic": "tides"}.items():
        expression = expression.replace(name, value)
    return expression
