"""Runs the fast tests on every Python of this machine, with the oldest and the newest libraries that are allowed.

`make test-matrix` writes the result into docs/COMPATIBILITY.md. Environments are kept in .venv/matrix; nothing is
installed anywhere else.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "COMPATIBILITY.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
ENDS = {"oldest": "lowest-direct", "newest": "highest"}
EXTRAS = ("server", "export", "console", "sim")
TESTS = (
    "core", "records", "storage", "metadata", "rpc", "runtime", "client", "controller", "cli", "scenarios", "replica",
)  # fmt: skip
TOOLS = (
    "fsspec", "hypothesis", "pytest", "pytest-asyncio", "pytest-randomly", "pytest-timeout", "kafka-python", "lz4",
    "python-snappy", "zstandard",
)  # fmt: skip
NAMED = (
    "grpcio", "protobuf", "aiokafka", "crc32c", "cramjam", "cryptography", "typer", "pydantic", "pyarrow", "uvloop",
)  # fmt: skip
DEADLINE_S = 1_200


@dataclass(frozen=True, slots=True)
class Run:
    """The content of one environment and the result of its tests."""

    python: str
    end: str
    versions: dict[str, str]
    verdict: str
    passed: bool


def interpreter(version: str) -> str | None:
    """A Python of this version: on the path, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *map(str, sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True))]
    for candidate in filter(None, found):
        asked = [candidate, "-c", "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"]
        if subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip() == version:
            return candidate
    return None


def uv(*words: str, python: str) -> None:
    """One step of an environment; its output is shown only when it fails.

    Raises:
        SystemExit: it failed.
    """
    command = [str(Path(sys.executable).parent / "uv"), "pip", *words, "--quiet", "--python", python]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def environment(version: str, end: str, python: str) -> Path:
    """The interpreter of an environment with the project, one end of its ranges, and what the tests need."""
    folder = ROOT / ".venv" / "matrix" / f"{version}-{end}"
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
    inside = str(folder / "bin" / "python")
    locked = str(folder / "locked.txt")
    extras = [word for extra in EXTRAS for word in ("--extra", extra)]
    uv("compile", "pyproject.toml", *extras, "--resolution", ENDS[end], "--output-file", locked, python=inside)
    wanted = [line for line in PROJECT["optional-dependencies"]["dev"] if re.split(r"[<>=\[]", line)[0] in TOOLS]
    uv("install", "--requirement", locked, "--constraint", locked, *wanted, python=inside)
    (next(folder.glob("lib/python*/site-packages")) / "strandline.pth").write_text(f"{ROOT / 'services'}\n")
    return Path(inside)


def tested(version: str, end: str, python: str) -> Run:
    """Run the fast tests in one environment."""
    inside = environment(version, end, python)
    locked = (inside.parents[1] / "locked.txt").read_text()
    versions = dict(re.findall(r"^([\w.-]+)==(\S+)", locked, re.MULTILINE))
    paths = [f"tests/{name}" for name in TESTS]
    command = [str(inside), "-m", "pytest", "-q", "--timeout", "60", "-p", "no:cacheprovider", *paths]
    with (inside.parents[1] / "tests.log").open("w") as log:
        done = subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, check=False, timeout=DEADLINE_S)
    last = (inside.parents[1] / "tests.log").read_text().strip().splitlines()[-1]
    verdict = re.sub(r" in [\d.]+s.*", "", last).strip("= ")
    return Run(version, end, versions, verdict, done.returncode == 0)


def page(runs: list[Run], absent: list[str]) -> str:
    """The page with the results."""
    lines = [
        "# Compatibility",
        "",
        "Written by `make test-matrix`, which runs the fast tests "
        f"({', '.join(f'`tests/{name}`' for name in TESTS)}) on every Python of the machine, with the oldest and the "
        "newest libraries that `pyproject.toml` allows. Everything else is tested with the versions of "
        "`requirements/dev.txt` on Python 3.11.",
        "",
        f"| Python | libraries | result | {' | '.join(NAMED)} |",
        f"|---|---|---|{'---|' * len(NAMED)}",
        *(
            f"| {run.python} | {run.end} | {run.verdict} | " + " | ".join(run.versions[name] for name in NAMED) + " |"
            for run in runs
        ),
        "",
    ]
    if absent:
        lines += [f"Untested, because the machine had no such interpreter: Python {', '.join(absent)}.", ""]
    return "\n".join(lines)


def main() -> int:
    """Run every environment, write the page; 1 if a test failed."""
    runs, absent = [], []
    for version in PYTHONS:
        python = interpreter(version)
        if python is None:
            print(f"==> Python {version}: untested, not on this machine", flush=True)
            absent.append(version)
            continue
        for end in ENDS:
            print(f"==> Python {version}, {end} libraries", end=": ", flush=True)
            runs.append(tested(version, end, python))
            print(runs[-1].verdict, flush=True)
    PAGE.write_text(page(runs, absent), encoding="utf-8")
    return 0 if all(run.passed for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
