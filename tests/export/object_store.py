"""An S3-compatible server as its own process, which a test can stop and start again at the same port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from types import TracebackType

START_S = 60.0
_LOOK_S = 0.02
BUCKET = "tides"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class ObjectStore:
    """`moto_server` on loopback. Its objects are in its memory, so a restart begins empty."""

    def __init__(self) -> None:
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"s3://{BUCKET}/state?endpoint_override=127.0.0.1:{self.port}&scheme=http"

    def start(self) -> None:
        """Start the server and create the bucket."""
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdout=quiet, stderr=quiet, env={**os.environ, **CREDENTIALS})
        try:
            self._await_port(self._process)
        except BaseException:
            self.stop()
            raise
        self._make_bucket()

    def _await_port(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            assert process.poll() is None, f"the object store ended with code {process.returncode} at its start"
            time.sleep(_LOOK_S)
        raise TimeoutError("the object store did not start")

    def _make_bucket(self) -> None:
        import pyarrow.fs as arrow_fs

        arrow_fs.S3FileSystem(
            endpoint_override=f"127.0.0.1:{self.port}", scheme="http", region="us-east-1", allow_bucket_creation=True
        ).create_dir(BUCKET)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)
            self._process = None

    def __enter__(self) -> ObjectStore:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stop()
