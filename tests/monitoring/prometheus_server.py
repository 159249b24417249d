"""The machine's own Prometheus that scrapes a live cluster on loopback, with the alert rules as deployed.

One thing differs from the deployed rules: no alert waits (``for: 0s``), because a test waits for an event and not for
its duration. Expressions, labels and annotations are unchanged.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from monitoring_files import ALERTS

_LISTENING = re.compile(r'msg="Listening on" address=(\S+)')
_READY = "Server is ready to receive web requests"
_START_S = 30.0
_CALL_S = 10.0


def rules_without_waiting() -> Any:
    """The deployed rules, each with ``for: 0s``."""
    document = yaml.safe_load(ALERTS.read_text())
    for group in document["groups"]:
        for rule in group["rules"]:
            rule["for"] = "0s"
    return document


class PrometheusServer:
    """One server; scrapes ``targets`` (host:port by the name of the process) every second."""

    def __init__(self, directory: Path, targets: Mapping[str, str]) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._log = directory / "prometheus.log"
        (directory / "rules.yaml").write_text(yaml.safe_dump(rules_without_waiting()))
        (directory / "prometheus.yaml").write_text(yaml.safe_dump(_configuration(targets)))
        self._process: subprocess.Popen[bytes] | None = None
        self._address = ""

    def __enter__(self) -> Self:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={self._directory / 'prometheus.yaml'}",
                    f"--storage.tsdb.path={self._directory / 'data'}",
                    "--web.listen-address=127.0.0.1:0",
                ],
                stdout=log,
                stderr=log,
            )
        self._address = self._listening()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process is not None
        self._process.terminate()
        try:
            self._process.wait(_CALL_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _listening(self) -> str:
        """Its address, as soon as it serves there: it listens earlier, and answers 503 until then."""
        assert self._process is not None
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            said = self._log.read_text()
            found = _LISTENING.search(said)
            if found and _READY in said:
                return found[1]
            assert self._process.poll() is None, self._log.read_text()
            time.sleep(0.05)
        raise AssertionError(f"prometheus does not listen: {self._log.read_text()}")

    def _get(self, path: str, **arguments: str) -> Any:
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(arguments)}"
        with urllib.request.urlopen(url, timeout=_CALL_S) as answer:
            said = json.loads(answer.read())
        assert said["status"] == "success", said
        return said["data"]

    def query(self, expression: str) -> list[Any]:
        """The series of an instant query; a number is the only entry of its list."""
        data = self._get("query", query=expression)
        return list(data["result"]) if data["resultType"] == "vector" else [data["result"]]

    def names(self) -> set[str]:
        """Every metric name that was ever scraped."""
        return set(self._get("label/__name__/values"))

    def firing(self) -> set[str]:
        """The alerts that fire now."""
        return {alert["labels"]["alertname"] for alert in self._get("alerts")["alerts"] if alert["state"] == "firing"}

    def until_scraped(self, processes: int, *, timeout_s: float) -> None:
        """Return when this many processes have answered a scrape.

        Raises:
            AssertionError: when ``timeout_s`` has passed.
        """
        deadline = time.monotonic() + timeout_s
        while len(self.query("up == 1")) < processes:
            assert time.monotonic() < deadline, "not every process is scraped"
            time.sleep(0.2)

    def until_answered(
        self, asked: Sequence[tuple[str, str]], between: Callable[[], object], *, timeout_s: float
    ) -> None:
        """Return when each of these titled queries has had at least one series; ``between`` is called before each try.

        Raises:
            AssertionError: with those that had none, when ``timeout_s`` has passed.
        """
        deadline = time.monotonic() + timeout_s
        left = list(asked)
        while left:
            assert time.monotonic() < deadline, f"without an answer: {left}"
            between()
            left = [(title, query) for title, query in left if not self.query(query)]

    def until(self, look: str, wanted: set[str], unwanted: set[str], *, timeout_s: float) -> set[str]:
        """Returns the firing alerts, as soon as all of ``wanted`` and none of ``unwanted`` are among them.

        Raises:
            AssertionError: with ``look`` and what fires instead, when ``timeout_s`` has passed.
        """
        deadline = time.monotonic() + timeout_s
        firing = self.firing()
        while not (wanted <= firing and not unwanted & firing):
            assert time.monotonic() < deadline, f"{look}: {sorted(firing)} fire after {timeout_s} s"
            time.sleep(0.2)
            firing = self.firing()
        return firing


def _configuration(targets: Mapping[str, str]) -> Any:
    scraped = [{"targets": [address], "labels": {"process": name}} for name, address in targets.items()]
    return {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": "strandline", "static_configs": scraped}],
    }
