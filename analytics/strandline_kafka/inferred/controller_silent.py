"""The controller decided nothing for a while: a change that was committed then had waited for the quorum."""

from __future__ import annotations

from collections.abc import Iterator

from strandline_kafka.inferred.evidence import Evidence, Finding, evidence_of, offsets_of

RULE = "controller_silent"
SOON_MS = 1_000
"""What waited is decided within so long of the end of a silence."""


def findings(scene: Evidence) -> Iterator[Finding]:
    """One for each silence that removals waited for."""
    for silence in scene.silences:
        waited = [one for one in scene.removals if 0 <= one.removal.at_ms - silence.to_ms <= SOON_MS]
        if waited:
            yield Finding(
                RULE,
                "the controller",
                f"no decision was possible for {silence.to_ms - silence.from_ms:,} ms right before it: the change may "
                "have waited for the quorum",
                "the leader proposed it after the silence had ended",
                evidence_of(waited, f"meta_offset {silence.meta_offset}"),
                offsets_of(waited),
                is_beside=True,
            )
