"""Strandline on a real Kubernetes, under load, through all faults of pods: `make test-with WHAT=kubernetes`.

Ends with 0 when nothing acknowledged was lost and every check kept its time, with 1 when not, and with 77 when there is
neither a cluster nor the means for one, with the reason.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import checks
from checks import Outcome, Test
from clients import Clients, in_sync
from controllers import decide_at_home
from kept import keep
from kubectl import Failed, all_ready, in_namespace, kubectl
from machine import NamedCluster, OwnCluster, find_cluster
from manifests import bind_shared_claim, dry_run_all, give_certificates, run_job

from strandline import __version__

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
SKIPPED = 77
IMAGE, ANALYTICS_IMAGE = f"strandline:{__version__}", f"strandline-analytics:{__version__}"
ETCD_IMAGE = f"strandline-etcd:{__version__}"
ANYWHERE: dict[str, Callable[[Test], Outcome]] = {
    "a": checks.delete_leader,
    "b": checks.rolling_restart,
    "c": checks.drain,
    "d": checks.scale_out_and_in,
    "e": checks.two_owners,
    "h": checks.kill_active,
    "i": checks.drain_active,
}
OWN_MACHINE: dict[str, Callable[[Test], Outcome]] = {
    "f": checks.lose_machine,
    "g": checks.partition_pods,
    "j": checks.replace_disk,
}


def main() -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(prog="make test-with WHAT=kubernetes", description=__doc__)
    parser.add_argument("--only", default="abcdehifgj", help="letters of the checks to run")
    parser.add_argument("--no-analytics", action="store_true", help="leave out the analytics Job")
    parser.add_argument("--no-build", action="store_true", help="take the images as they are")
    parser.add_argument("--write", action="store_true", help="write the results into docs/OPERATIONS.md")
    parser.add_argument("--keep", action="store_true", help="leave the cluster up")
    chosen = parser.parse_args()
    cluster = find_cluster()
    if isinstance(cluster, str):
        print(f"skipped: make test-with WHAT=kubernetes: {cluster}")
        return SKIPPED
    signal.signal(signal.SIGTERM, _interrupted)
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    directory = ROOT / ".run" / "kubernetes" / stamp
    directory.mkdir(parents=True)
    run = Run(cluster, directory, chosen.only, builds=cluster.is_own and not chosen.no_build)
    try:
        run.everything(with_analytics=not chosen.no_analytics)
    except (Failed, subprocess.SubprocessError, AssertionError) as error:
        run.failures.append(f"{type(error).__name__}: {error}")
        run.gather_evidence()
    except KeyboardInterrupt as error:
        run.failures.append(f"interrupted: {error}")
    finally:
        run.close()
        if not chosen.keep:
            cluster.down()
    return run.tell(write=chosen.write)


def _interrupted(number: int, _frame: Any) -> NoReturn:
    """SIGTERM takes everything down like Ctrl-C."""
    raise KeyboardInterrupt(f"signal {number}")


class Run:
    """One run: its cluster, its load, its results."""

    def __init__(self, cluster: OwnCluster | NamedCluster, directory: Path, only: str, *, builds: bool) -> None:
        self.cluster = cluster
        self.builds = builds
        self.directory = directory
        self.only = only
        self.clients = Clients(directory, IMAGE)
        self.failures: list[str] = []
        self.outcomes: list[Outcome] = []
        self.facts: dict[str, Any] = {}
        self._began = time.monotonic()

    def note(self, sentence: str) -> None:
        """One line of the log of the run."""
        print(f"{time.monotonic() - self._began:7.1f} s  {sentence}", flush=True)

    def everything(self, *, with_analytics: bool) -> None:
        """Up, validate, deploy, load, break, judge, compute."""
        self._images(with_analytics)
        self.cluster.up(IMAGE, ETCD_IMAGE)
        self.facts["kubernetes"] = json.loads(kubectl("version", "--output", "json"))["serverVersion"]["gitVersion"]
        self.facts["dry_run"] = dry_run_all()
        for line in self.facts["dry_run"]:
            self.note(f"server-side dry run, {line}")
        self._deploy()
        self._checks()
        found = self.clients.finish()
        self.facts["acknowledged"] = self.clients.acknowledged()
        self.note(f"history: {self.facts['acknowledged']} records acknowledged, {len(found)} anomalies")
        self.failures += [f"history: {anomaly.name}: {anomaly.sentence}" for anomaly in found[:10]]
        if with_analytics:
            self.cluster.load_at_home(ANALYTICS_IMAGE)
            began = time.monotonic()
            self.facts["analytics"] = run_job()
            self.facts["analytics_s"] = round(time.monotonic() - began)
            self.note(f"analytics Job in {self.facts['analytics_s']} s: {self.facts['analytics']}")

    def _images(self, with_analytics: bool) -> None:
        """The images as the tree is now; a cluster named by KUBECONFIG must get them itself."""
        if self.builds:
            targets = ["data-plane", *(["analytics"] if with_analytics else [])]
            subprocess.run([str(ROOT / "deploy" / "images" / "build"), *targets, "etcd"], check=True, timeout=1800)

    def _deploy(self) -> None:
        if self.cluster.is_own:
            bind_shared_claim(HERE / "overlay")
        give_certificates()
        began = time.monotonic()
        kubectl("apply", "--kustomize", str(HERE / "overlay"))
        for stateful in ("strandline-etcd", "strandline-controller"):
            in_namespace("rollout", "status", f"statefulset/{stateful}", "--timeout=180s", timeout_s=200)
        all_ready(3)
        self.facts["ready_s"] = round(time.monotonic() - began)
        self.note(f"the local overlay is ready {self.facts['ready_s']} s after apply")
        self.clients.start(HERE / "load.yaml")
        self.clients.acked_since(0.0)
        self.note("two producers with acks=all and two consumers run in the cluster")

    def _checks(self) -> None:
        test = Test(self.cluster, self.clients)
        for letter, check in (ANYWHERE | OWN_MACHINE).items():
            if letter not in self.only:
                continue
            if letter in OWN_MACHINE and not self.cluster.is_own:
                self.note(f"skipped: ({letter}): it needs the machines themselves, and this is not our own cluster")
                continue
            in_sync()
            if letter in OWN_MACHINE:
                # What follows a lost controller is (h) and (i); these are about nodes.
                decide_at_home()
            outcome = check(test)
            self.outcomes.append(outcome)
            self.failures += [f"{outcome.name}: {failure}" for failure in outcome.failures]
            self.note(outcome.sentence)

    def gather_evidence(self) -> None:
        """Collects the state after a failure, before it is torn down."""
        if not self.cluster.evidence(self.directory):
            self.note(f"the cluster has no API server to ask; what its programs printed is in {self.directory}")
            return
        questions = {
            "pods.txt": ["get", "pods", "-o", "wide"],
            "events.txt": ["get", "events", "--sort-by=.lastTimestamp"],
            "describe.txt": ["describe", "pods"],
            **{f"controller-{n}.txt": ["logs", f"strandline-controller-{n}", "--tail=300"] for n in range(3)},
            **{f"etcd-{n}.txt": ["logs", f"strandline-etcd-{n}", "--tail=300"] for n in range(3)},
            **{f"replica-{n}.txt": ["logs", f"strandline-replica-{n}", "--tail=300"] for n in range(3)},
        }
        for name, words in questions.items():
            try:
                (self.directory / name).write_text(in_namespace(*words, timeout_s=30))
            except (Failed, subprocess.SubprocessError) as error:
                (self.directory / name).write_text(str(error))

    def close(self) -> None:
        """Ends the clients."""
        self.clients.close()

    def tell(self, *, write: bool) -> int:
        """Prints the verdict on the terminal, as JSON, and in the guide if requested."""
        verdict = "red" if self.failures else "green"
        result = {
            "verdict": verdict,
            "took_s": round(time.monotonic() - self._began),
            "processors": os.cpu_count(),
            "load_average": os.getloadavg()[2],
            **self.facts,
            "checks": [
                {"name": o.name, "unavailable_s": round(o.unavailable_s, 2), "reported": o.sentence}
                for o in self.outcomes
            ],
            "failures": self.failures,
        }
        (self.directory / "result.json").write_text(json.dumps(result, indent=1) + "\n")
        for failure in self.failures:
            print(f"  {failure[:900]}")
        if write and self.outcomes:
            keep("kubernetes run", rendered(result))
        print(f"{verdict}: make test-with WHAT=kubernetes; {result['took_s']} s; {self.directory}")
        return 1 if self.failures else 0


def rendered(result: dict[str, Any]) -> str:
    """The results as a block of docs/OPERATIONS.md, so that no figure there is typed by hand."""
    lines = [
        f"One run of `make test-with WHAT=kubernetes` on Kubernetes {result['kubernetes']}, on one machine with "
        f"{result['processors']} cores and a load average of {result['load_average']:.0f}: {result['verdict']}; "
        f"{result.get('acknowledged', 0):,} records acknowledged, {len(result['failures'])} failures.",
        "",
        "| what was done | longest time without an acknowledgement of acks=all in one partition |",
        "|---|---|",
        *(f"| {check['name']} | {check['unavailable_s']:.2f} s |" for check in result["checks"]),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
