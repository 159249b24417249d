"""The cluster under the test: the one that KUBECONFIG names, or one of our own on this machine.

Invariant: what was started is stopped and what was cut is healed, whatever happened in between. Faults that need the
machine itself (a kubelet that stands still, packets that are dropped) exist on our own cluster only.
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
    """Why there can be no cluster of our own here; empty if there can."""
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

    def up(self, image: str) -> None:
        """Builds what is not built yet, starts it, gives it the services' image and volumes."""
        self._script("build", timeout_s=_BUILD_S)
        # First, so that questions after a start that failed go to this cluster and to no other.
        for line in self._script("env", quiet=True).splitlines():
            name, _, value = line.removeprefix("export ").partition("=")
            os.environ[name] = value.replace("$PATH", os.environ["PATH"])
        self._script("up")
        self._script("load", image)
        self._script("volumes", "9", "1024")
        kubectl("label", "node", "node0", f"{HOME_LABEL}=yes", "--overwrite")

    def load_at_home(self, image: str) -> None:
        """Gives one node an image that only one pod needs, and a large one."""
        self._script("load", image, NODES="1")

    def evidence(self, directory: Path) -> bool:
        """Copies what the cluster's own programs printed, the end of it; whether there is an API server to ask."""
        for log in sorted((self.state / "log").glob("*.log")):
            with log.open("rb") as source:
                source.seek(max(0, log.stat().st_size - _LOG_BYTES))
                (directory / f"cluster-{log.name}").write_bytes(source.read())
        return (self.state / "admin.conf").exists()

    def down(self) -> None:
        """Stops and removes everything, whatever state it is in."""
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
        """SIGSTOP: the node stops talking to Kubernetes; its pods run on."""
        index = int(node.removeprefix("node"))
        pid = int((self.state / "run" / f"kubelet{index}.pid").read_text())
        os.kill(pid, signal.SIGSTOP)
        self._stopped[index] = pid

    def continue_kubelet(self, index: int) -> None:
        """SIGCONT."""
        os.kill(self._stopped.pop(index), signal.SIGCONT)

    @contextmanager
    def node_lost(self, node: str) -> Iterator[None]:
        """The kubelet stands still and nothing passes between the node's pods and everybody else."""
        network = f"10.244.{node.removeprefix('node')}.0/24"
        with self._dropped([["-s", network], ["-d", network]]):
            self.stop_kubelet(node)
            try:
                yield
            finally:
                self.continue_kubelet(int(node.removeprefix("node")))

    def freeze(self, pod_uid: str) -> int:
        """Lets a pod's data node stand still as one that hangs does, for good; how many processes that were.

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

    def up(self, image: str) -> None:
        """Chooses where what must stay reachable runs."""
        first = kubectl("get", "nodes", "--output", "jsonpath={.items[0].metadata.name}")
        kubectl("label", "node", first, f"{HOME_LABEL}=yes", "--overwrite")
        print(f"the cluster of KUBECONFIG; it must know {image}", flush=True)

    def load_at_home(self, image: str) -> None:
        """Images come from where that cluster gets its images."""
        print(f"it must know {image} too", flush=True)

    def evidence(self, directory: Path) -> bool:
        """Nothing of its own: it is somebody else's."""
        return True

    def down(self) -> None:
        """Removes what the test put there."""
        kubectl("delete", "namespace", "strandline", "--ignore-not-found", "--timeout=180s", timeout_s=200)
        kubectl("label", "nodes", "--all", f"{HOME_LABEL}-")


def find_cluster() -> OwnCluster | NamedCluster | str:
    """The cluster to test on, or the reason why there is none."""
    if os.environ.get("KUBECONFIG"):
        return NamedCluster() if shutil.which("kubectl") else "KUBECONFIG is set, but there is no kubectl"
    return missing() or OwnCluster()
