"""Which inferred causes stand beside one change: of rules that compete, those that explain most; a tie stays a tie."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping

from strandline_kafka.inferred import rules
from strandline_kafka.inferred.evidence import Evidence, Finding

MOST_EVIDENCE = 40
"""Records and lines that one finding names; how many more there are is said."""

RULES: dict[str, Callable[[Evidence], Iterator[Finding]]] = {
    rule.__name__: rule
    for rule in (
        rules.node_stopped, rules.node_paused, rules.slow_replica, rules.slow_pair, rules.leader_side,
        rules.young_leader, rules.controller_silent, rules.fast_restart,
    )
}  # fmt: skip
"""Every rule by its name."""


def inferred(scene: Evidence) -> dict[int, str]:
    """The value of ``ext.inferred`` of the change at an offset of the metadata log."""
    by_offset: dict[int, list[Finding]] = {}
    for rule in RULES.values():
        for finding in rule(scene):
            for offset in finding.explains:
                by_offset.setdefault(offset, []).append(finding)
    return {offset: _text(_standing(found)) for offset, found in by_offset.items()}


def _standing(found: Iterable[Finding]) -> list[Finding]:
    findings = list(found)
    beside = [one for one in findings if one.is_beside]
    competing = [one for one in findings if not one.is_beside]
    most = max((len(one.explains) for one in competing), default=0)
    return [one for one in competing if len(one.explains) == most] + beside


def _text(findings: Iterable[Finding]) -> str:
    return json.dumps([_plain(one) for one in findings], separators=(",", ":"))


def _plain(finding: Finding) -> Mapping[str, object]:
    evidence = list(finding.evidence[:MOST_EVIDENCE])
    if len(finding.evidence) > MOST_EVIDENCE:
        evidence.append(f"{len(finding.evidence) - MOST_EVIDENCE} more")
    return {
        "rule": finding.rule,
        "subject": finding.subject,
        "says": finding.says,
        "contradiction": finding.contradiction,
        "evidence": evidence,
        "strength": len(finding.explains),
    }
