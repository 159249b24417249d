"""The alert rules: each fires for its cause and for nothing else, is explained, and names metrics that exist."""

from __future__ import annotations

import re
import subprocess

import pytest
import yaml
from monitoring_files import ALERTS, MONITORING, NOT_OURS, ROOT, dashboard, metrics_in, needs_promtool, queries, rules

from strandline.metrics.families import FAMILIES

KNOWN = {family.full_name for family in FAMILIES} | NOT_OURS


@needs_promtool
@pytest.mark.parametrize("words", [("test", "rules", "alerts_test.yaml"), ("check", "config", "prometheus.yaml")])
def test_promtool_accepts_the_rules(words: tuple[str, ...]) -> None:
    """It plays the series of alerts_test.yaml against the rules, and a Prometheus starts with prometheus.yaml."""
    ended = subprocess.run(
        ["promtool", *words], cwd=MONITORING, capture_output=True, text=True, timeout=60, check=False
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_rule_has_a_unit_test() -> None:
    """Each alert is seen quiet and firing in alerts_test.yaml."""
    tests = yaml.safe_load((MONITORING / "alerts_test.yaml").read_text())["tests"]
    looked_at = {
        name
        for test in tests
        for look in test.get("promql_expr_test", ())
        if look["exp_samples"]
        for name in re.findall(r'alertname="(\w+)"', look["expr"])
    }

    assert {rule["alert"] for rule in rules()} - looked_at == set()


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_is_explained(rule: dict[str, object]) -> None:
    """Severity, summary, description, and an absolute link to a heading of its own in docs/ALERTS.md."""
    labels, annotations = rule["labels"], rule["annotations"]
    assert isinstance(labels, dict) and isinstance(annotations, dict)
    page, _, anchor = annotations["runbook_url"].partition("#")
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs" / "ALERTS.md").read_text(), re.MULTILINE)

    assert page == (MONITORING / "runbooks.url").read_text().strip()
    assert page.startswith("https://")
    assert page.endswith("/docs/ALERTS.md")
    assert labels["severity"] in ("critical", "warning")
    assert annotations["summary"] and annotations["description"]
    assert anchor == str(rule["alert"]).lower()
    assert rule["alert"] in headings


def test_no_explanation_is_left_of_an_alert_that_is_gone() -> None:
    """ALERTS.md has the headings of the current rules."""
    headings = set(re.findall(r"^## (\w+)$", (ROOT / "docs" / "ALERTS.md").read_text(), re.MULTILINE))

    assert headings == {rule["alert"] for rule in rules()}


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: str(rule["alert"]))
def test_an_alert_names_metrics_that_exist(rule: dict[str, str]) -> None:
    """A rule with a name that is never exposed would never fire."""
    named = metrics_in(rule["expr"])

    assert named
    assert named - KNOWN == set()


def test_the_dashboard_names_metrics_that_exist() -> None:
    """A panel with a name that is never exposed would stay empty."""
    unknown = {title: metrics_in(query) - KNOWN for title, query in queries() if metrics_in(query) - KNOWN}

    assert unknown == {}
    assert all(metrics_in(query) for _, query in queries())


def test_the_dashboard_is_laid_out() -> None:
    """No panel hides another, ids are unique, and every panel has a description."""
    panels = dashboard()["panels"]
    places = [(x, y) for panel in panels for x, y in _cells(panel["gridPos"])]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(set(places)) == len(places)
    assert all(panel["title"] for panel in panels)


def _cells(place: dict[str, int]) -> list[tuple[int, int]]:
    columns = range(place["x"], place["x"] + place["w"])
    return [(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])]


def test_rules_are_plain_ones_of_prometheus() -> None:
    """One group, so that all of them are evaluated in order; no alert occurs twice."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    names = [rule["alert"] for rule in rules()]

    assert len(groups) == 1
    assert len(set(names)) == len(names)
