"""The output of an embedded Spark is passed on, except its start-up banner."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import subprocess, sys
from strandline_analytics.jvm_start import without_greetings
said = ["WARNING: Using incubator modules: jdk.incubator.vector", "spark: ERROR the disk is full", "",
        'Setting default log level to "WARN".', "Starting Streaming TransformWithStateInPandas Python worker.", "last"]
child = "import sys; sys.stderr.write(sys.argv[1])"
with without_greetings():
    started = subprocess.Popen([sys.executable, "-c", child, "\\n".join(said) + "\\n"])
started.wait()
sys.stderr.write("ours\\n")
import threading
[one.join(20) for one in threading.enumerate() if one.name == "jvm-words"]
"""


def test_lines_of_a_child_come_through_without_greetings() -> None:
    """Errors are printed, in order, and the program's own later output goes where it always went."""
    reported = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=60, check=True)

    assert sorted(reported.stderr.splitlines()) == ["last", "ours", "spark: ERROR the disk is full"]
    assert reported.stdout == ""
