"""Runs the fast tests on every Python of this machine, with the oldest and the newest libraries that are allowed, and
the tests of the analytics with each PySpark that is allowed beside the one of requirements/dev.txt.

`make test-matrix` writes the results into docs/COMPATIBILITY.md. Environments are kept in .venv/matrix; nothing is
installed anywhere else.
"""

from __future__ import annotations

import argparse
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
SPARK_ENDS = {"4.1": "oldest", "4.2": "newest"}
"""Minor versions of PySpark, and which end of the other ranges each is tested with."""
SPARK_TESTS = {
    # PySpark 4.1 leaves the sockets of its own answers to the garbage collector.
    "4.1": (
        "tests/analytics", "tests/analytics/oldest_pyspark.py", "-m", "not reads_stream",
        "-W", "ignore:unclosed <socket:ResourceWarning",
    ),
    "4.2": ("tests/analytics",),
}  # fmt: skip
SPARK_EXTRAS = ("analytics", "sim")
SPARK_TOOLS = (*TOOLS, "duckdb", "flask", "flask-cors", "grpcio-status", "moto", "playwright")
# botocore, under the S3 server of a test, takes no newer one.
SPARK_BOUND = "python-dateutil<3"
SPARK_NAMED = ("pyspark", "pandas", "pyarrow", "jinja2", "grpcio", "protobuf")
DEADLINE_S = 1_200
SPARK_DEADLINE_S = 3_600
SPARK_HEADING = "## PySpark"


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


def environment(
    name: str, end: str, python: str, *, extras: tuple[str, ...], tools: tuple[str, ...], bound: str = ""
) -> Path:
    """The interpreter of an environment with the project, one end of its ranges within a bound, and tools of tests."""
    folder = ROOT / ".venv" / "matrix" / name
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([python, "-m", "venv", "--without-pip", str(folder)], check=True)
    inside = str(folder / "bin" / "python")
    locked, bounds = str(folder / "locked.txt"), folder / "bounds.txt"
    bounds.write_text(f"{bound}\n")
    asked = [word for extra in extras for word in ("--extra", extra)]
    asked += ["--resolution", ENDS[end], "--constraint", str(bounds)]
    uv("compile", "pyproject.toml", *asked, "--output-file", locked, python=inside)
    wanted = [line for line in PROJECT["optional-dependencies"]["dev"] if re.split(r"[<>=\[]", line)[0] in tools]
    uv("install", "--requirement", locked, "--constraint", locked, *wanted, python=inside)
    paths = "".join(f"{ROOT / name}\n" for name in ("services", "analytics"))
    (next(folder.glob("lib/python*/site-packages")) / "strandline.pth").write_text(paths)
    return Path(inside)


def tested(version: str, end: str, inside: Path, arguments: tuple[str, ...], deadline_s: int) -> Run:
    """Run tests in one environment."""
    locked = (inside.parents[1] / "locked.txt").read_text()
    versions = dict(re.findall(r"^([\w.-]+)==(\S+)", locked, re.MULTILINE))
    command = [str(inside), "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    with (inside.parents[1] / "tests.log").open("w") as log:
        done = subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, check=False, timeout=deadline_s)
    last = (inside.parents[1] / "tests.log").read_text().strip().splitlines()[-1]
    verdict = re.sub(r" in [\d.]+s.*", "", last).strip("= ")
    print(verdict, flush=True)
    return Run(version, end, versions, verdict, done.returncode == 0)


def fast_runs() -> tuple[list[Run], list[str]]:
    """The fast tests with each Python, and which of them are not on this machine."""
    runs, absent = [], []
    for version in PYTHONS:
        python = interpreter(version)
        if python is None:
            print(f"==> Python {version}: untested, not on this machine", flush=True)
            absent.append(version)
            continue
        for end in ENDS:
            print(f"==> Python {version}, {end} libraries", end=": ", flush=True)
            inside = environment(f"{version}-{end}", end, python, extras=EXTRAS, tools=TOOLS)
            arguments = ("--timeout", "60", *(f"tests/{name}" for name in TESTS))
            runs.append(tested(version, end, inside, arguments, DEADLINE_S))
    return runs, absent


def spark_run(spark: str) -> Run:
    """The tests of the analytics with a minor version of PySpark, on the Python that everything is tested with."""
    version, end = f"{sys.version_info.major}.{sys.version_info.minor}", SPARK_ENDS[spark]
    print(f"==> PySpark {spark}, {end} libraries", end=": ", flush=True)
    extras, tools, bound = SPARK_EXTRAS, SPARK_TOOLS, f"pyspark=={spark}.*\n{SPARK_BOUND}"
    inside = environment(f"pyspark-{spark}", end, sys.executable, extras=extras, tools=tools, bound=bound)
    return tested(version, end, inside, SPARK_TESTS[spark], SPARK_DEADLINE_S)


def table(runs: list[Run], names: tuple[str, ...]) -> list[str]:
    """A row for each run, with the versions of some libraries."""
    return [
        f"| Python | libraries | result | {' | '.join(names)} |",
        f"|---|---|---|{'---|' * len(names)}",
        *(
            f"| {run.python} | {run.end} | {run.verdict} | " + " | ".join(run.versions[name] for name in names) + " |"
            for run in runs
        ),
        "",
    ]


def fast_part(runs: list[Run], absent: list[str]) -> str:
    """The part of the page about the fast tests."""
    lines = [
        "# Compatibility",
        "",
        "Written by `make test-matrix`, which runs the fast tests "
        f"({', '.join(f'`tests/{name}`' for name in TESTS)}) on every Python of the machine, with the oldest and the "
        "newest libraries that `pyproject.toml` allows. Everything else is tested with the versions of "
        "`requirements/dev.txt` on Python 3.11.",
        "",
        *table(runs, NAMED),
    ]
    if absent:
        lines += [f"Untested, because the machine had no such interpreter: Python {', '.join(absent)}.", ""]
    return "\n".join(lines)


def spark_part(runs: list[Run]) -> str:
    """The part of the page about PySpark."""
    lines = [
        SPARK_HEADING,
        "",
        "`tests/analytics`, with each PySpark that is allowed beside the one of `requirements/dev.txt`. With 4.1 those "
        "that read a stream are left out (the mark `reads_stream`), and `tests/analytics/oldest_pyspark.py` shows that "
        "streams are refused there ([SPARK.md](SPARK.md#versions)).",
        "",
        *table(runs, SPARK_NAMED),
    ]
    return "\n".join(lines)


def main() -> int:
    """Run every environment, or those of PySpark alone, and write the page; 1 if a test failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spark", action="store_true", help="PySpark alone; the first part of the page stays")
    fast: list[Run] = []
    if parser.parse_args().spark:
        first = PAGE.read_text(encoding="utf-8").partition(SPARK_HEADING)[0]
    else:
        fast, absent = fast_runs()
        first = fast_part(fast, absent)
    spark = [spark_run(minor) for minor in SPARK_ENDS]
    PAGE.write_text(f"{first.rstrip()}\n\n{spark_part(spark)}", encoding="utf-8")
    return 0 if all(run.passed for run in (*fast, *spark)) else 1


if __name__ == "__main__":
    sys.exit(main())
