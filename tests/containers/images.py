"""Builds the project's own images for the tests, with the same script that users run.

Invariant: an image that was built from the same inputs is not built again; the script detects that.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys

from engine import ROOT

from strandline import __version__

# Images are built beside other tests, some of which read what this process prints.
_LOG = logging.getLogger(__name__)

BUILD_S = 1_200
_BASE, _JAVA = "strandline-base:bookworm", "strandline-java:bookworm"
_BESIDE = {"analytics": ["java"], "etcd": ["etcd"]}


def built(target: str) -> str:
    """The name of the image of a target, ``data-plane``, ``analytics`` or ``etcd``, built from what is there now."""
    environment = {**os.environ, "PYTHON": sys.executable, **_origins(target)}
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


def _origins(target: str) -> dict[str, str]:
    """The base images: what the machine can make from its own package mirror, else what can be pulled."""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return {}
    script = [str(ROOT / "deploy" / "images" / "base"), *_BESIDE.get(target, [])]
    done = subprocess.run(script, check=False, capture_output=True, text=True, timeout=BUILD_S)
    if done.returncode:
        _LOG.warning("deploy/images/base made no base: %s", done.stderr.strip()[-500:])
        return {}
    return {"BASE": _BASE, "JAVA": _JAVA}
