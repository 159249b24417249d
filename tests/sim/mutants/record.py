"""The gate's result after all mutants were examined: the verdicts, and what became of the required ones.

Invariant: `docs/mutants.json` is the result of a run; the block in `docs/RELIABILITY.md` is a function of that file.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from mutants import mutant
from mutants.examination import Examined
from mutants.mutant import Mutant

for (
    _subject
) in "elections fetches groups isr moves offsets permissions reigns stores transactions truncation watermarks".split():
    import_module(f"mutants.{_subject}")
_ORDER = """
    R1 R2 R3 R4 R5 R6a R6b R7a R7b R8 R9a R9b R10 R11 R12a R12b R51 R52 R53 R54 R55 R56 R83 R57 R58 R59 R63 R64
    R86 R95 R96 R97 R99 46 94 98
    R60 79 80 R61 R62 78 R84 R85 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 34 29a 29b 30 31 32 33 48 35
    35b 36 37 38 39 43a 43b 44 45 47 47b 47c 50 73 74 75 76 77 81a 81b 87 88 89 90 91 92 93 101 102 103 104 105a
    105b 106 107a 107b 108 109 110a 110b 111 112a 112b 113a 113b 114 115 116 120 121 122
    130 131 132 133 134 135 136 137 138 139 140
    141 142 143 144 145 146 147 148 149
""".split()
"""The numbers as `docs/mutants.json` lists them; a mutant without a place here is an error."""

MUTANTS = tuple(sorted(mutant.MUTANTS, key=lambda each: _ORDER.index(each.number)))
"""``R1`` to ``R12``, then 13 to 26 and 47; 27 to 39, 48 and 50 of several controllers and of stores that forget, and 43
to 45 of what is given twice, or believed; R51 to R56, R83 to R85 and 73 to 77 of consumer groups; R57 to R64, R86 and
78 to 81 and 87 to 93 of transactions; 46 and 94 to R99 of reassignments; 141 to 149 of what clients may do and use;
from 101 on those of elections by reports and of wrong peers, and from 120 on
those that others invented.

The pairs that prove a mask stand with the mutant that is masked."""

REQUIRED = tuple(f"R{number}" for number in (*range(1, 13), *range(51, 65), *range(83, 87), 95, 96, 97, 99))


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
    complaints = [
        *[f"{each.number}: {each.trouble}" for each in found if each.trouble],
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
    return json.loads(JSON.read_text(encoding="utf-8")) if JSON.exists() else {"mutants": []}


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
