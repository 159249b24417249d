"""Counts the shape of the tree: `make check` prints the table, and fails where a package has outgrown its limits.

Invariant: every tracked `*.py` is counted, in one row; nothing is left out. Generated code has a row of its own.
"""

from __future__ import annotations

import ast
import io
import statistics
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = ("_pb2.py", "_pb2_grpc.py", "client/sync.py")
LONG = 60
"""Lines of a function above which it is long; also lines of a file up to which it is short."""
LIMITS = {
    "strandline": (383, 85_430),
    "strandline_sim": (103, 22_570),
    "strandline_analytics": (152, 22_350),
    "strandline_kafka": (48, 10_165),
    "tests": (590, 122_343),
}
"""Files and lines that a package may have: what it has, and no more. A change that needs more takes something away.
Rules, quotas, tokens and the audit (ADR 32 to 34) had a budget of their own, 3,000 lines; they have 15 files and 3,500,
and 23 files and 4,550 of tests. Comments that give reasons, 500 lines, are among those of `strandline`."""
_ANYTHING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Module)


@dataclass(slots=True)
class File:
    """What is counted of one file."""

    path: Path
    package: str
    lines: int
    imports: int = 0
    comments: int = 0
    docstrings: int = 0
    functions: list[tuple[int, str]] = field(default_factory=list)
    """Length in lines, and name."""
    constructors: list[tuple[int, str]] = field(default_factory=list)
    """Parameters, and class."""
    classes: list[str] = field(default_factory=list)
    imported: set[str] = field(default_factory=set)
    """Names of modules."""


def tracked(pattern: str) -> list[Path]:
    """Paths below the root that git tracks."""
    found = subprocess.run(["git", "ls-files", "-z", pattern], cwd=ROOT, check=True, capture_output=True, text=True)
    return sorted(Path(name) for name in found.stdout.split("\0") if name)


def package_of(path: Path) -> str:
    """The row of the table that a file is counted in."""
    if path.as_posix().endswith(GENERATED):
        return "generated"
    if path.parts[0] in ("services", "analytics"):
        return path.parts[1]
    return path.parts[0]


def count(path: Path) -> File:
    """Read one file."""
    text = (ROOT / path).read_text()
    found = File(path, package_of(path), text.count("\n"))
    tree = ast.parse(text)
    own = {token.start[0] for token in tokenize.generate_tokens(io.StringIO(text).readline) if _is_comment(token)}
    found.comments = len(own)
    lines: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
            found.imported.update(_modules(node))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.functions.append(((node.end_lineno or 0) - node.lineno + 1, node.name))
        elif isinstance(node, ast.ClassDef):
            found.classes.append(node.name)
            found.constructors += [(n, node.name) for n in _parameters(node)]
        if isinstance(node, _ANYTHING) and ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            found.docstrings += (first.end_lineno or 0) - first.lineno + 1
    found.imports = len(lines)
    return found


def _is_comment(token: tokenize.TokenInfo) -> bool:
    return token.type == tokenize.COMMENT and token.line.lstrip().startswith("#")


def _modules(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (name.name for name in node.names)
    elif node.module:
        yield from (f"{node.module}.{name.name}" for name in node.names)


def _parameters(node: ast.ClassDef) -> Iterator[int]:
    for one in node.body:
        if isinstance(one, ast.FunctionDef) and one.name == "__init__":
            yield len(one.args.posonlyargs) + len(one.args.args) + len(one.args.kwonlyargs) - 1


def circles(files: Sequence[File]) -> list[list[str]]:
    """Groups of files that import each other, each in order of names; imports within functions count, too."""
    modules = {_module(one.path): one for one in files}
    arrows = {name: sorted(set(_targets(one, modules)) - {name}) for name, one in modules.items()}
    groups = (sorted(group) for group in _strong(arrows) if len(group) > 1)
    return sorted(groups, key=lambda group: (-len(group), group))


def _targets(one: File, modules: Mapping[str, File]) -> Iterator[str]:
    """The modules that a file imports, or from which it imports a name."""
    for name in one.imported:
        if name in modules:
            yield name
        elif name.rpartition(".")[0] in modules:
            yield name.rpartition(".")[0]


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    parts = parts[1:] if parts[0] in ("services", "analytics") else parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _strong(arrows: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Strongly connected components (Tarjan 1972), without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on: set[str] = set()
    for root in arrows:
        if root in index:
            continue
        work = [(root, iter(arrows[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on.add(root)
        while work:
            name, rest = work[-1]
            for other in rest:
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on.add(other)
                    work.append((other, iter(arrows[other])))
                    break
                if other in on:
                    low[name] = min(low[name], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    at = stack.index(name)
                    group, stack[at:] = stack[at:], []
                    on.difference_update(group)
                    yield group


def folders(files: Iterable[File]) -> list[tuple[int, str]]:
    """Number of files in each folder, most first."""
    found = Counter(one.path.parent.as_posix() for one in files)
    return sorted(((n, name) for name, n in found.items()), reverse=True)


def table(files: Sequence[File]) -> str:
    """One line per package."""
    rows: dict[str, list[File]] = defaultdict(list)
    for one in files:
        rows[one.package].append(one)
    text = [
        f"{'':22}{'files':>6}{'lines':>9}{'median':>8}{'short':>7}{'import':>8}{'comment':>9}{'docstr':>8}"
        f"{'long':>6}{'params':>8}  fullest folder"
    ]
    for name, group in sorted(rows.items(), key=lambda item: -sum(one.lines for one in item[1])):
        lines = sum(one.lines for one in group) or 1
        most, folder = folders(group)[0]
        text.append(
            f"{name:22}{len(group):>6}{lines:>9,}{statistics.median(one.lines for one in group):>8.0f}"
            f"{sum(one.lines <= LONG for one in group):>7}"
            f"{sum(one.imports for one in group) / lines:>8.1%}{sum(one.comments for one in group) / lines:>9.1%}"
            f"{sum(one.docstrings for one in group) / lines:>8.1%}"
            f"{sum(n > LONG for one in group for n, _ in one.functions):>6}"
            f"{max((n for one in group for n, _ in one.constructors), default=0):>8}  {most} {folder}"
        )
    return "\n".join(text)


def over(files: Sequence[File]) -> list[str]:
    """What has grown beyond `LIMITS`, in one sentence each."""
    counted = Counter(one.package for one in files)
    lines = Counter[str]()
    for one in files:
        lines[one.package] += one.lines
    return [
        f"{package}: {counted[package]} files, {lines[package]:,} lines; the limits are {most_files} and {most_lines:,}"
        for package, (most_files, most_lines) in LIMITS.items()
        if counted[package] > most_files or lines[package] > most_lines
    ]


def main() -> int:
    """Print the table; returns 1 if a package has outgrown its limits."""
    files = [count(path) for path in tracked("*.py")]
    print(table(files))
    product = [one for one in files if one.path.parts[0] in ("services", "analytics")]
    for group in circles(product):
        print(f"circle of {len(group)}: {' '.join(group)}")
    names = Counter(name for one in product for name in set(one.classes))
    several = sorted(((n, name) for name, n in names.items() if n >= 3), reverse=True)
    print(f"class names in three or more files: {len(several)}: {' '.join(name for _, name in several)}")
    grown = over(files)
    print("\n".join(grown), file=sys.stderr, end="\n" if grown else "")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
