"""The analytics in a session of Spark Connect, whose server is in the JVM of the session that all tests share."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from strandline.cli.app import app
from strandline_analytics.frames import statistics

pytestmark = pytest.mark.timeout(600)  # It may be the first to wait for the session.

CLIENT = Path(__file__).with_name("connect_client.py")
STATS = ("s08", "s10")
_CLIENT_S = 400


@pytest.fixture
def server(spark: SparkSession) -> Iterator[str]:
    """The address of a server of Spark Connect on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    session: Any = spark
    context = session._jsc.sc()
    context.conf().set("spark.connect.grpc.binding.address", "127.0.0.1")
    context.conf().set("spark.connect.grpc.binding.port", str(port))
    service = session._jvm.org.apache.spark.sql.connect.service.SparkConnectService
    service.start(context)
    yield f"sc://127.0.0.1:{port}"
    service.stop(session._jvm.scala.Option.empty(), session._jvm.scala.Option.empty())


def test_a_client_without_java_gets_the_same_rows(spark: SparkSession, server: str, tmp_path: Path) -> None:
    """Statistics and tables of an export are made by the server, and asked for by a process that can start no JVM."""
    export = tmp_path / "export"
    assert CliRunner().invoke(app, ["sim", "replay", "7", "--export", str(export)]).exit_code == 0
    own = {
        name: [row.asDict(recursive=True) for row in frame.collect()]
        for name, frame in statistics(spark, [str(export)], STATS).items()
    }
    environment = os.environ | {"SPARK_REMOTE": server, "JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)}
    command = [sys.executable, str(CLIENT), str(export), str(tmp_path / "out"), *STATS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_CLIENT_S, check=False)

    assert done.returncode == 0, done.stderr[-3000:]
    reported = json.loads(done.stdout.splitlines()[-1])
    assert reported["kind"] == "pyspark.sql.connect.session"
    assert reported["rows"] == json.loads(json.dumps(own, default=str))
    assert reported["written"] == {name: len(own[name]) for name in STATS}
