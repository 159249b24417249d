"""The gate's result after all mutants were examined: the verdicts, and what became of the required ones.

Invariant: `docs/mutants.json` is the result of a run; the block in `docs/RELIABILITY.md` is a function of that file.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mutants.catalogue import MUTANTS, REQUIRED
from mutants.examination import Examined
from mutants.mutant import Mutant

DOCS = Path(__file__).resolve().parents[3] / "docs"
JSON = DOCS / "mutants.json"

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Judgement:
    """The overall result: the rows as they are stored, and why the build fails, if it does."""

    rows: tuple[dict[str, Any], ...]
    complaints: tuple[str, ...]
    required_killed: int


def with_pairs(only: Collection[str] = ()) -> list[Mutant]:
    """Every mutant, or those of these numbers, each pair after the mutant that it explains."""
    asked = [mutant for mutant in MUTANTS if not only or {mutant.number, mutant.pair and mutant.pair.number} & {*only}]
    return [each for mutant in asked for each in (mutant, mutant.pair) if each is not None]


def judge(found: Sequence[Examined]) -> Judgement:
    """Combine the verdicts."""
    by_number = {each.number: each for each in found}
    rows = tuple(_row(mutant, by_number[mutant.number]) for mutant in with_pairs() if mutant.number in by_number)
    asked = [mutant for mutant in MUTANTS if mutant.number in by_number]
    trouble = [f"{each.number}: {each.trouble}" for each in found if each.trouble]
    complaints = [
        *trouble,
        *_unbitten(found),
        *(_survivor(m, by_number) for m in asked if not _is_dealt_with(m, by_number)),
    ]
    return Judgement(rows, tuple(complaints), sum(_is_bug_killed(bug, by_number) for bug in REQUIRED))


def _row(mutant: Mutant, found: Examined) -> dict[str, Any]:
    return {
        "number": mutant.number,
        "name": mutant.name,
        "broken": mutant.broken,
        "source": mutant.source,
        "required": mutant.is_required,
        "killed": bool(found.kills),
        "masked_by": mutant.masked_by,
        "pair": mutant.pair.number if mutant.pair else None,
        "rules": [asdict(bite) for bite in found.bites],
        "verdicts": [verdict.as_json() | {"seconds": round(verdict.seconds, 1)} for verdict in found.verdicts],
    }


def _is_killed(mutant: Mutant, found: Mapping[str, Examined]) -> bool:
    """A required mutant must break a named property in at least one layer; a wrong claim of one file is not enough."""
    kills = found[mutant.number].kills if mutant.number in found else ()
    return any(kill.is_by_property for kill in kills) if mutant.is_required else bool(kills)


def _is_bug_killed(bug: str, found: Mapping[str, Examined]) -> bool:
    return all(_is_killed(mutant, found) for mutant in MUTANTS if mutant.bug == bug)


def _is_dealt_with(mutant: Mutant, found: Mapping[str, Examined]) -> bool:
    if _is_killed(mutant, found):
        return True
    return not mutant.is_required and mutant.pair is not None and _is_killed(mutant.pair, found)


def _unbitten(found: Sequence[Examined]) -> list[str]:
    return [
        f"{each.number}: the rule {bite.rule} was never asked, so this mutant proves nothing"
        for each in found
        for bite in each.bites
        if not bite.asked
    ]


def _survivor(mutant: Mutant, found: Mapping[str, Examined]) -> str:
    if mutant.pair is not None:
        return f"{mutant.number} and its pair {mutant.pair.number} survive"
    return f"{mutant.number} ({mutant.name}) survives all layers"


def write(rows: Sequence[Row], facts: Mapping[str, Any]) -> None:
    """Write `docs/mutants.json`. A mutant that is not among ``rows`` keeps its earlier result."""
    kept = {row["number"]: row for row in _read()["mutants"]} | {row["number"]: {**row, "run": facts} for row in rows}
    record = {"mutants": [kept[mutant.number] for mutant in with_pairs() if mutant.number in kept]}
    JSON.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(JSON.read_text(encoding="utf-8")) if JSON.exists() else {"mutants": []}
    return found


def section() -> str:
    """The block of the page: how many are killed, and in which layer."""
    rows = _read()["mutants"]
    days = sorted({row["run"]["date"] for row in rows})
    required = [row for row in rows if row["required"]]
    others = [row for row in rows if not row["required"]]
    masked = [f"{row['number']} ({row['masked_by']})" for row in others if row["masked_by"]]
    bugs = {row["number"].rstrip("abc") for row in required}
    alive = {row["number"].rstrip("abc") for row in required if not row["killed"]}
    return "\n".join(
        [
            f"Obtained {days[0]} to {days[-1]}: {len(bugs - alive)} of {len(bugs)} required bugs are killed, and "
            f"{sum(row['killed'] for row in others)} of the {len(others)} other mutants.",
            f"Masked: {'; '.join(masked) or 'none'}.",
            "",
            "| layer | mutants tried | killed |",
            "|---|---|---|",
            *(_layer(layer, rows) for layer in ("tests", "scenarios", "seeds", "search")),
        ]
    )


def _layer(layer: str, rows: Sequence[Row]) -> str:
    found = [verdict for row in rows for verdict in row["verdicts"] if verdict["layer"] == layer]
    return f"| {layer} | {len(found)} | {sum(bool(verdict['killed_by']) for verdict in found)} |"
