"""The cluster under test: the one that KUBECONFIG names, or the test's own one on this machine.

Invariant: everything started is stopped and everything cut is healed, whatever happened in between. Faults that need
the machine itself (a stopped kubelet, dropped packets) exist on the test's own cluster only.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubectl import Failed, kubectl

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "deploy" / "kubernetes" / "test" / "cluster"
HOME_LABEL = "strandline.dev/test-home"
_COMMENT = ["-m", "comment", "--comment", "strandline-test"]
_BUILD_S = 3 * 3600.0
_LOG_BYTES = 200_000


def missing() -> str:
    """Why an own cluster cannot run here; empty if it can."""
    if os.geteuid() != 0:
        return "no KUBECONFIG, and a cluster of our own needs root"
    # Before anything is built, which takes a quarter of an hour.
    looked = subprocess.run([str(SCRIPT), "check"], capture_output=True, text=True, timeout=60)
    if looked.returncode:
        said = looked.stderr.strip().removeprefix("cluster: ") or f"{SCRIPT.name} check ended with {looked.returncode}"
        return f"no KUBECONFIG, and for a cluster of our own: {said}"
    return ""


class OwnCluster:
    """Three kubelets on this machine."""

    is_own = True

    def __init__(self) -> None:
        self.state = Path(os.environ.get("STRANDLINE_KUBERNETES_STATE", "/tmp/strandline-kubernetes"))
        self._stopped: dict[int, int] = {}

    def up(self, *images: str) -> None:
        """Builds what is not built yet, starts it, provides the images and volumes."""
        self._script("build", timeout_s=_BUILD_S)
        # First, so that requests after a failed start go to this cluster and to no other.
        for line in self._script("env", quiet=True).splitlines():
            name, _, value = line.removeprefix("export ").partition("=")
            os.environ[name] = value.replace("$PATH", os.environ["PATH"])
        self._script("up")
        self._script("load", *images)
        self._script("volumes", "15", "1024")
        kubectl("label", "node", "node0", f"{HOME_LABEL}=yes", "--overwrite")

    def load_at_home(self, image: str) -> None:
        """Gives one node a large image that only one pod needs."""
        self._script("load", image, NODES="1")

    def evidence(self, directory: Path) -> bool:
        """Copies the end of the cluster programs' output; returns whether there is an API server to query."""
        for log in sorted((self.state / "log").glob("*.log")):
            with log.open("rb") as source:
                source.seek(max(0, log.stat().st_size - _LOG_BYTES))
                (directory / f"cluster-{log.name}").write_bytes(source.read())
        return (self.state / "admin.conf").exists()

    def down(self) -> None:
        """Stops and removes everything, in any state."""
        for node in list(self._stopped):
            self.continue_kubelet(node)
        self._script("down")

    def _script(self, *words: str, timeout_s: float = 600.0, quiet: bool = False, **variables: str) -> str:
        done = subprocess.run(
            [str(SCRIPT), *words],
            stdout=subprocess.PIPE,
            text=True,
            timeout=timeout_s,
            env={**os.environ, **variables},
        )
        if not quiet:
            print(done.stdout, end="", flush=True)
        if done.returncode:
            raise Failed(f"{SCRIPT.name} {' '.join(words)} ended with {done.returncode}")
        return done.stdout

    def stop_kubelet(self, node: str) -> None:
        """SIGSTOP: the node stops talking to Kubernetes; its pods keep running."""
        index = int(node.removeprefix("node"))
        pid = int((self.state / "run" / f"kubelet{index}.pid").read_text())
        os.kill(pid, signal.SIGSTOP)
        self._stopped[index] = pid

    def continue_kubelet(self, index: int) -> None:
        """SIGCONT."""
        os.kill(self._stopped.pop(index), signal.SIGCONT)

    @contextmanager
    def node_lost(self, node: str) -> Iterator[None]:
        """The kubelet is stopped and nothing passes between the node's pods and all others."""
        network = f"10.244.{node.removeprefix('node')}.0/24"
        with self._dropped([["-s", network], ["-d", network]]):
            self.stop_kubelet(node)
            try:
                yield
            finally:
                self.continue_kubelet(int(node.removeprefix("node")))

    def freeze(self, pod_uid: str) -> int:
        """Stops a pod's data node for good, like one that hangs; returns how many processes it was.

        The kubelet's SIGKILL ends it. Only processes in the pod's own cgroup are touched.
        """
        frozen = 0
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if pod_uid in (folder / "cgroup").read_text() and b"replica" in (folder / "cmdline").read_bytes():
                    os.kill(int(folder.name), signal.SIGSTOP)
                    frozen += 1
            except (FileNotFoundError, ProcessLookupError):
                continue
        return frozen

    @contextmanager
    def partitioned(self, one: str, other: str) -> Iterator[None]:
        """Nothing passes between two addresses, in either direction."""
        with self._dropped([["-s", one, "-d", other], ["-s", other, "-d", one]]):
            yield

    @contextmanager
    def _dropped(self, matches: list[list[str]]) -> Iterator[None]:
        made = []
        try:
            for match in matches:
                rule = ["FORWARD", *match, *_COMMENT, "-j", "DROP"]
                subprocess.run(["iptables", "-w", "-I", *rule], check=True, timeout=30)
                made.append(rule)
            yield
        finally:
            for rule in made:
                subprocess.run(["iptables", "-w", "-D", *rule], check=True, timeout=30)


class NamedCluster:
    """The cluster that KUBECONFIG names. It must be able to get the images; nothing of it is started or stopped."""

    is_own = False

    def up(self, *images: str) -> None:
        """Chooses the machine for what must stay reachable."""
        first = kubectl("get", "nodes", "--output", "jsonpath={.items[0].metadata.name}")
        kubectl("label", "node", first, f"{HOME_LABEL}=yes", "--overwrite")
        print(f"the cluster of KUBECONFIG; it must know {', '.join(images)}", flush=True)

    def load_at_home(self, image: str) -> None:
        """Images come from that cluster's own source."""
        print(f"it must know {image} too", flush=True)

    def evidence(self, directory: Path) -> bool:
        """None of its own: the cluster belongs to someone else."""
        return True

    def down(self) -> None:
        """Removes what the test created there."""
        kubectl("delete", "namespace", "strandline", "--ignore-not-found", "--timeout=180s", timeout_s=200)
        kubectl("label", "nodes", "--all", f"{HOME_LABEL}-")


def find_cluster() -> OwnCluster | NamedCluster | str:
    """The cluster to test on, or the reason why there is none."""
    if os.environ.get("KUBECONFIG"):
        return NamedCluster() if shutil.which("kubectl") else "KUBECONFIG is set, but there is no kubectl"
    return missing() or OwnCluster()
