"""An environment with the PySpark of a pair, beside the one that everything else is tested with.

It is kept in `.venv/formats`. Runtimes are fetched by Maven into the user's repository, where Spark looks first.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
INSTALL_S = 900
FETCH_S = 600
_FOLDER = ROOT / ".venv" / "formats"
_LISTED = ROOT / "requirements" / "analytics.txt"
_FETCH = "org.apache.maven.plugins:maven-dependency-plugin:3.7.0:get"


def python_for(pyspark: str, package: str) -> Path:
    """The Python of an environment with a version of PySpark, made if it is not there; Maven fetches the package.

    Raises:
        subprocess.CalledProcessError: pip or Maven failed.
    """
    folder = _FOLDER / pyspark
    python, mark = folder / "bin" / "python", folder / "complete"
    lines = [line for line in _LISTED.read_text().splitlines() if not line.startswith("pyspark==")]
    wanted = "\n".join([*lines, f"pyspark=={pyspark}", ""])
    if not (mark.is_file() and mark.read_text() == wanted):
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        (folder / "requirements.txt").write_text(wanted)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "--requirement", str(folder / "requirements.txt")], check=True, timeout=INSTALL_S)
        mark.write_text(wanted)
    fetched = folder / f"fetched-{package.replace(':', '-')}"
    if not fetched.exists() and shutil.which("mvn") is not None:
        fetch = ["mvn", "-B", "-q", _FETCH, f"-Dartifact={package}"]
        subprocess.run(fetch, check=True, timeout=FETCH_S)
        fetched.touch()
    return python


def environment() -> dict[str, str]:
    """Variables for a Python of such an environment: our code is that of the working tree."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    return own | {
        "PYTHONPATH": f"{ROOT / 'services'}{os.pathsep}{ROOT / 'analytics'}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        # Nothing here runs often enough to be worth a second compilation.
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1",
    }
