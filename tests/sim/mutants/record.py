"""The gate's result after all mutants were examined: the verdicts, what became of the required ones, two documents.

Invariant: `docs/mutants.json` is the result of a run, and the table in `docs/RELIABILITY.md` is a function of that
file.
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
PAGE = DOCS / "RELIABILITY.md"
BEGIN = "<!-- mutants: written by `make mutants` -->"
END = "<!-- end of mutants -->"

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
    """Write both documents. A mutant that is not among ``rows`` keeps its earlier result."""
    kept = {row["number"]: row for row in _read()["mutants"]} | {row["number"]: {**row, "run": facts} for row in rows}
    record = {"mutants": [kept[mutant.number] for mutant in with_pairs() if mutant.number in kept]}
    JSON.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(replaced(PAGE.read_text(encoding="utf-8"), section(record)), encoding="utf-8")


def _read() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(JSON.read_text(encoding="utf-8")) if JSON.exists() else {"mutants": []}
    return found


def replaced(page: str, text: str) -> str:
    """The page with other text between the two marks."""
    before, _, rest = page.partition(BEGIN)
    _, mark, after = rest.partition(END)
    assert mark, f"{PAGE.name} has no {BEGIN} and {END}"
    return f"{before}{BEGIN}\n{text}{END}{after}"


def section(record: Mapping[str, Any]) -> str:
    """The table, with the sentences that are needed to read it."""
    rows = record["mutants"]
    required = {row["number"].rstrip("abc") for row in rows if row["required"]}
    killed = required - {row["number"].rstrip("abc") for row in rows if row["required"] and not row["killed"]}
    days = sorted({row["run"]["date"] for row in rows})
    when = " to ".join(sorted({days[0], days[-1]}))
    lines = [
        f"Obtained {when}: {len(killed)} of {len(required)} required bugs are killed. "
        "A cell says what was broken, and where in a scenario or after how many seeds or states; "
        "`survives` says how many were tried within the bound of that run, which `mutants.json` names.",
        "",
        "| # | mutant | tests | scenarios | seeds | search | verdict |",
        "|---|---|---|---|---|---|---|",
        *(line(row) for row in rows),
        "",
    ]
    return "\n".join(lines)


def line(row: Row) -> str:
    """One mutant's line of the table."""
    cells = {verdict["layer"]: _cell(verdict) for verdict in row["verdicts"]}
    number = f"**{row['number']}**" if row["required"] else row["number"]
    found = " | ".join(cells.get(layer, "–") for layer in ("tests", "scenarios", "seeds", "search"))
    return f"| {number} | {row['name']} | {found} | {_verdict(row)} |"


def _cell(verdict: Row) -> str:
    unit = {"tests": "tests", "seeds": "seeds", "search": "states"}.get(verdict["layer"], "scenarios")
    if not verdict["killed_by"]:
        return f"survives {verdict['tried']:,} {unit}"
    if verdict["layer"] == "tests":
        return f"`{verdict['where'].partition('::')[2].partition('[')[0]}`"
    if verdict["layer"] == "scenarios":
        name, _, line = verdict["where"].partition(".scenario:")
        return f"{verdict['killed_by']} in `{name}`, line {line}"
    return f"{verdict['killed_by']} after {verdict['tried']:,} {unit}"


def _verdict(row: Row) -> str:
    if row["killed"]:
        return "killed"
    if row["masked_by"]:
        return f"masked by {row['masked_by']}; see {row['pair']}"
    return "**survives**"
