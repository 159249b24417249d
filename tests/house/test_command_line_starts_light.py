"""The help of the command line costs no more than printing it."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Runs the command as its script does, then prints the imported modules.
_SCRIPT = """
import sys
from strandline.cli.__main__ import main
sys.argv = ["strandline", *{arguments!r}]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print("\\nIMPORTED:", *sorted({{name.split(".")[0] for name in sys.modules}}))
"""


@pytest.mark.parametrize("arguments", [["--help"], ["topic", "--help"], ["produce", "--help"], ["up", "--help"]])
def test_help_imports_no_heavy_package(arguments: list[str]) -> None:
    """`--help` answers without grpc, protobuf, the codecs or Spark."""
    command = [sys.executable, "-c", _SCRIPT.format(arguments=arguments)]

    ran = subprocess.run(command, capture_output=True, text=True, timeout=30)
    imported = ran.stdout.rpartition("IMPORTED:")[2].split()

    assert ran.returncode == 0, ran.stderr
    assert "typer" in imported
    assert {"grpc", "google", "pyspark", "aiokafka", "pydantic_settings"} & set(imported) == set()
