"""The container engine of these tests, an existing one or one that is started here, and the images built with it.

Invariant: an engine that was started here is stopped here; an existing one is left as it was. A machine that can have
none reports why in one sentence.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from strandline import __version__

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "build" / "docker"
"""Images that were made once are found again by the next run of an engine of ours."""

_START_S, _STOP_S = 60, 30
_LOOK_S, _ASK_S = 0.2, 20

# Images are built beside other tests, some of which read what this process prints.
_LOG = logging.getLogger(__name__)

BUILD_S = 1_200
_BASE, _JAVA = "strandline-base:bookworm", "strandline-java:bookworm"


class NoEngine(Exception):
    """No engine is available on this machine; the sentence says why."""


@contextmanager
def engine() -> Iterator[None]:
    """An engine that responds, for the duration of the block.

    Raises:
        NoEngine: there is none, and none can be started.
    """
    trouble = silence()
    if not trouble:
        yield
        return
    if os.geteuid() != 0:
        raise NoEngine(f"no container engine answers ({trouble}), and only root can start one")
    if not (shutil.which("dockerd") and shutil.which("docker")):
        raise NoEngine("dockerd is not installed; as root: make packages (on Debian: apt-get install docker.io)")
    yield from _own_engine()


def silence() -> str:
    """Why no engine responds; empty if one does."""
    if not shutil.which("docker"):
        return "docker is not installed"
    # Not by the library: it leaves sockets open where nothing answers.
    asked = ["docker", "version", "--format", "{{.Server.Version}}"]
    try:
        done = subprocess.run(asked, check=False, capture_output=True, text=True, timeout=_ASK_S)
    except subprocess.TimeoutExpired:
        return f"it said nothing for {_ASK_S} s"
    return done.stderr.strip().splitlines()[-1][:200] if done.returncode else ""


def _own_engine() -> Iterator[None]:
    """Starts dockerd with its own directories, and stops it."""
    DATA.mkdir(parents=True, exist_ok=True)
    # A socket's path has at most 107 bytes; a checkout may have a long path.
    run = Path(tempfile.mkdtemp(prefix="strandline-docker-"))
    socket = f"unix://{run}/docker.sock"
    command = ["dockerd", "--host", socket, "--data-root", str(DATA / "root"), "--exec-root", str(run / "exec")]
    with (DATA / "dockerd.log").open("wb") as sink:
        daemon = subprocess.Popen([*command, "--pidfile", str(run / "pid")], stdout=sink, stderr=subprocess.STDOUT)
    before = os.environ.get("DOCKER_HOST")
    os.environ["DOCKER_HOST"] = socket
    try:
        _await_answer(daemon)
        yield
    finally:
        if before is None:
            del os.environ["DOCKER_HOST"]
        else:
            os.environ["DOCKER_HOST"] = before
        daemon.terminate()
        try:
            daemon.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
        shutil.rmtree(run, ignore_errors=True)


def _await_answer(daemon: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_S
    trouble = "it was not asked"
    while time.monotonic() < deadline:
        trouble = silence()
        if not trouble:
            return
        try:
            daemon.wait(_LOOK_S)
        except subprocess.TimeoutExpired:
            continue
        said = (DATA / "dockerd.log").read_text(errors="replace").strip().splitlines()
        raise NoEngine(f"dockerd ended: {said[-1][:300] if said else 'it said nothing'}")
    raise NoEngine(f"dockerd did not answer within {_START_S} s: {trouble}")


def built(target: str) -> str:
    """The name of the image of a target, ``data-plane``, ``analytics`` or ``etcd``, built from what is there now."""
    environment = {**os.environ, "PYTHON": sys.executable, **_origins()}
    done = subprocess.run(
        [str(ROOT / "deploy" / "images" / "build"), target],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=BUILD_S,
    )
    assert done.returncode == 0, f"deploy/images/build {target}: {done.stdout[-500:]} {done.stderr[-2000:]}"
    return f"strandline{'' if target == 'data-plane' else f'-{target}'}:{__version__}"


def _origins() -> dict[str, str]:
    """The base images: what the machine can make from its own package mirror, else what can be pulled.

    All at once: each call of the script that has something to make begins with a system of its own.
    """
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return {}
    script = [str(ROOT / "deploy" / "images" / "base"), "java", "etcd"]
    done = subprocess.run(script, check=False, capture_output=True, text=True, timeout=BUILD_S)
    if done.returncode:
        _LOG.warning("deploy/images/base made no base: %s", done.stderr.strip()[-500:])
        return {}
    return {"BASE": _BASE, "JAVA": _JAVA}
