"""Runs the commands of a page in a shell, one after the other, and returns their output.

Invariant: every command has a deadline; variables that one sets are available to the next.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from shell_page import Step

HERE = Path(__file__).parent
_COMMAND_S = 300.0
_CALL_S = 280.0
_BUILD_S = 300.0
_VERSION = "v1.9.4"


def typed(steps: list[Step], variables: Mapping[str, str], tools: Path) -> Iterator[tuple[Step, int, str]]:
    """Each step with its exit code and output, errors included; programs are searched in ``tools`` first."""
    environment = {**os.environ, **variables, "PATH": f"{tools}:{os.environ['PATH']}"}
    for step in steps:
        script = f"{step.command}\ncode=$?\nenv -0 >&2\nexit $code" if step.only_sets else f"{{ {step.command}\n}} 2>&1"
        ran = subprocess.run(["bash", "-c", script], capture_output=True, env=environment, timeout=_COMMAND_S)
        if step.only_sets:
            environment |= dict(pair.split("=", 1) for pair in ran.stderr.decode().split("\0") if "=" in pair)
        yield step, ran.returncode, ran.stdout.decode()


def grpcurl_path() -> Path | None:
    """The path of grpcurl: from GRPCURL, from the PATH, from `go install`, or built once into a cache by Go."""
    places = (os.environ.get("GRPCURL"), shutil.which("grpcurl"), str(Path.home() / "go" / "bin" / "grpcurl"))
    found = next((Path(place) for place in places if place and Path(place).exists()), None)
    return found or _built_grpcurl()


def _built_grpcurl() -> Path | None:
    if shutil.which("go") is None:
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "strandline" / "grpcurl"
    if not (cache / "grpcurl").exists():
        command = ["nice", "-n", "19", "go", "install", f"github.com/fullstorydev/grpcurl/cmd/grpcurl@{_VERSION}"]
        try:
            subprocess.run(command, env={**os.environ, "GOBIN": str(cache)}, capture_output=True, timeout=_BUILD_S)
        except subprocess.TimeoutExpired:
            return None
    return cache / "grpcurl" if (cache / "grpcurl").exists() else None


def install_tool(directory: Path, *, grpcurl: Path | None) -> Path:
    """A directory for the PATH in which `grpcurl` is grpcurl itself, or buf behind the same command line."""
    directory.mkdir(parents=True, exist_ok=True)
    link = directory / "grpcurl"
    if grpcurl is not None:
        # A command that names no deadline has one that a busy machine keeps; the server's own is a minute.
        program = f"{grpcurl.resolve()} -max-time {_CALL_S:g}"
    else:
        program = f"{sys.executable} {HERE / 'buf_as_grpcurl.py'}"
    link.write_text(f'#!/bin/sh\nBUF={Path(sys.executable).parent / "buf"} exec {program} "$@"\n')
    link.chmod(0o755)
    return directory
