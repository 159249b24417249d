"""Forty mutants of what is around the core, drawn by chance, and the tests of their own folders that must kill them.

    PYTHONPATH=tests/sim .venv/bin/python -m mutants.drawn draw           writes the list, without results
    PYTHONPATH=tests/sim .venv/bin/python -m mutants.drawn judge [3 17]   runs the tests, and writes what they said

`make test-deep` judges all of them. The exit code is 1 if one survives. One that changes nothing has the reason in the
list, as ``equivalent``, and is judged only if its number is given; a line that was written again since the draw has
``changed``. The mutants of the catalogue break rules that were thought of; these break lines that were drawn. The
list was drawn before modules were merged into fewer files; its lines are followed to where they are now.

Invariants: seed and sources give the list; a mutant is a text in place of another in a copy of the tree, never in the
tree; before a mutant is judged, the tests that judge it have passed in that copy.
"""

from __future__ import annotations

import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
LIST = Path(__file__).with_name("drawn.json")
SEED, COUNT = 2026, 40
LIMIT_S, TIMES = 900, 5
"""How long a folder's tests may take without a mutant; with one, so many times what they took."""
PACKAGES = ("runtime", "rpc", "controller", "node", "client", "export", "cli")
OPERATORS = ("negated condition", "dropped call", "changed bound", "swapped order")
GENERATED = ("sync.py",)
SURVIVES = "survives"
_BOUNDS = {ast.Lt: (b"<", b"<="), ast.LtE: (b"<=", b"<"), ast.Gt: (b">", b">="), ast.GtE: (b">=", b">")}
_LOGS = re.compile(r"(self\.)?_?log(ger)?\.")
Change = tuple[int, int, bytes]
"""Bytes of a source from one place to another, and what takes their place."""


def changes(text: bytes, operator: str) -> Iterator[Change]:
    """Every place of a source where an operator can act."""
    lines = [0, *accumulate(map(len, text.splitlines(keepends=True)))]

    def span(node: Any) -> tuple[int, int]:
        return lines[node.lineno - 1] + node.col_offset, lines[node.end_lineno - 1] + node.end_col_offset

    for node in ast.walk(ast.parse(text)):
        match operator, node:
            case "negated condition", ast.If() | ast.While() | ast.IfExp():
                start, end = span(node.test)
                if text[start:end] not in (b"True", b"TYPE_CHECKING"):
                    yield start, end, b"not (%b)" % text[start:end]
            case "dropped call", ast.Expr() if _calls(node):
                yield *span(node), b"pass"
            case "changed bound", ast.Compare(ops=[op]) if type(op) in _BOUNDS:
                start, end = span(node.left)[1], span(node.comparators[0])[0]
                yield start, end, text[start:end].replace(*_BOUNDS[type(op)])
            case "swapped order", ast.AST(body=list()) if not isinstance(node, ast.Module):
                for one, other in pairwise(node.body):
                    if _may_change_places(one, other):
                        (start, middle), (again, end) = span(one), span(other)
                        yield start, end, text[again:end] + text[middle:again] + text[start:middle]


def _calls(node: ast.AST) -> bool:
    """Whether a statement calls or awaits something for what it does; what it logs changes nothing for a program."""
    is_call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call | ast.Await)
    return is_call and not _LOGS.match(ast.unparse(node))


def _may_change_places(one: ast.stmt, other: ast.stmt) -> bool:
    """Whether both do something that others see, and the second uses no name that the first makes."""
    made = {part.id for part in ast.walk(one) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    used = {part.id for part in ast.walk(other) if isinstance(part, ast.Name)}
    seen = all(
        _calls(each) or (isinstance(each, ast.Assign) and not isinstance(each.targets[0], ast.Name))
        for each in (one, other)
    )
    return seen and (_calls(one) or _calls(other)) and not made & used


def mutants_of(path: Path, operator: str) -> Iterator[dict[str, str]]:
    """Whole lines before and after, where no others in the file are the same."""
    text = path.read_bytes()
    for start, end, new in changes(text, operator):
        begin, stop = text.rfind(b"\n", 0, start) + 1, text.find(b"\n", end)
        before, after = text[begin:stop], text[begin:start] + new + text[end:stop]
        if text.count(before + b"\n") == 1:
            file, tests = str(path.relative_to(ROOT)), f"tests/{path.relative_to(ROOT).parts[2]}"
            yield {"file": file, "tests": tests, "before": before.decode(), "after": after.decode()}


def draw() -> list[dict[str, Any]]:
    """The list: packages by turns, in each of them the operators by turns, and of these any place but those drawn."""
    chance, drawn = random.Random(SEED), list[dict[str, Any]]()
    for number in range(COUNT):
        turn, place = divmod(number, len(PACKAGES))
        operator = OPERATORS[(turn + place) % len(OPERATORS)]
        paths = sorted((ROOT / "services/strandline" / PACKAGES[place]).rglob("*.py"))
        found = [each for path in paths if path.name not in GENERATED for each in mutants_of(path, operator)]
        rest = [each for each in found if not any(each.items() <= other.items() for other in drawn)]
        drawn.append({"number": number + 1, "operator": operator, **chance.choice(rest), "first": "", "now": ""})
    return drawn


def judge(mutants: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each with its verdict, in a copy of the tree that is removed in the end."""
    with tempfile.TemporaryDirectory(prefix="strandline-mutants-") as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(".*", "build", "__pycache__"))
        limits_s = dict[str, float]()
        for mutant in mutants:
            tests = mutant["tests"]
            if _is_killed_again(copy, mutant, f"{tests}/{mutant['now']}"):
                yield mutant
                continue
            if tests not in limits_s:
                start_s = time.monotonic()
                verdict = _verdict(copy, tests, LIMIT_S)
                assert verdict == SURVIVES, f"{tests} without a mutant: {verdict}"
                limits_s[tests] = TIMES * (time.monotonic() - start_s)
            with _broken(copy, mutant):
                verdict = re.sub(r"^tests/[^:]*/", "", _verdict(copy, tests, limits_s[tests]))
            yield {**mutant, "first": mutant["first"] or verdict, "now": verdict}


def _is_killed_again(copy: Path, mutant: dict[str, Any], test: str) -> bool:
    """Whether the test that killed it last still does, and passes without it; then no other need be run."""
    if "::" not in test or _run(copy, [test], LIMIT_S) != SURVIVES:
        return False
    with _broken(copy, mutant):
        return _run(copy, [test], LIMIT_S) != SURVIVES


@contextmanager
def _broken(copy: Path, mutant: dict[str, Any]) -> Iterator[None]:
    path = copy / mutant["file"]
    text = path.read_text()
    assert text.count(mutant["before"] + "\n") == 1, f"mutant {mutant['number']}: its lines are gone"
    _write(path, text.replace(mutant["before"] + "\n", mutant["after"] + "\n"))
    try:
        yield
    finally:
        _write(path, text)


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    # Bytecode of a text of the same size, written in the same second, would be believed.
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*"):
        compiled.unlink()


def _verdict(copy: Path, tests: str, limit_s: float) -> str:
    """The first test that fails, and fails again alone: one that a busy machine made late kills nothing."""
    late: list[str] = []
    while True:
        verdict = _run(copy, [tests, *(f"--deselect={test}" for test in late)], limit_s)
        if "::" not in verdict or _run(copy, [verdict], limit_s) != SURVIVES:
            return verdict
        late.append(verdict)


def _run(copy: Path, tests: list[str], limit_s: float) -> str:
    """The first test that fails, or what else is wrong."""
    command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", "-p", "no:randomly", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy / "services")}
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, check=False, capture_output=True, text=True, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return f"no end within {limit_s:.0f} s"
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    otherwise = f"exit code {done.returncode}: {(done.stdout + done.stderr).strip()[-200:]}"
    return SURVIVES if done.returncode == 0 else failed[1] if failed else otherwise


def _save(mutants: list[dict[str, Any]]) -> None:
    LIST.write_text(json.dumps(mutants, indent=1, ensure_ascii=False) + "\n")


def main(verb: str, *numbers: str) -> int:
    """Do what the module's text says; returns the exit code."""
    if verb == "draw":
        _save(draw())
        return 0
    mutants, survived = json.loads(LIST.read_text()), False
    unknown = set(numbers) - {str(each["number"]) for each in mutants}
    if unknown:
        print(f"no mutant has the number {', '.join(sorted(unknown))}; there are 1 to {len(mutants)}", file=sys.stderr)
        return 2
    chosen = [each for each in mutants if str(each["number"]) in numbers or not (numbers or "equivalent" in each)]
    for judged in judge(chosen):
        mutants[judged["number"] - 1] = judged
        _save(mutants)
        print(f"{judged['number']:>3}  {judged['operator']} in {judged['file']}: {judged['now']}", flush=True)
        survived |= judged["now"] == SURVIVES
    return int(survived)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
