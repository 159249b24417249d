"""The test's own cluster is refused before anything is built where something is missing, and leaves its logs."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "deploy" / "kubernetes" / "test" / "cluster"
PROGRAMS = (
    "containerd ctr runc etcd conntrack ethtool socat ipset iptables iptables-save ip sysctl openssl curl docker go"
)
PLUGINS = "bridge host-local loopback portmap"
BUILT = "kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy pause coredns kubectl"


class Machine:
    """A machine with everything that is needed, as far as `cluster check` can see."""

    def __init__(self, directory: Path) -> None:
        self.bin, self.plugins, self.cache = directory / "bin", directory / "cni", directory / "cache"
        for folder, names in ((self.bin, PROGRAMS), (self.plugins, PLUGINS), (self.cache / "bin", BUILT)):
            folder.mkdir(parents=True)
            for name in names.split():
                (folder / name).write_text("#!/bin/sh\necho 1\n")
                (folder / name).chmod(0o755)

    def check(self) -> tuple[int, str]:
        """The exit code of `cluster check`, and its output."""
        # Only the programs of the script itself are taken from this machine.
        tools = self.bin.parent / "tools"
        tools.mkdir(exist_ok=True)
        for name in "bash dirname tr sort sed timeout tail python3 env".split():
            if not (tools / name).exists():
                (tools / name).symlink_to(_which(name))
        environment = {
            "PATH": f"{self.bin}:{tools}",
            "HOME": str(self.bin.parent),
            "CNI_PLUGINS": str(self.plugins),
            "STRANDLINE_KUBERNETES_CACHE": str(self.cache),
            "STRANDLINE_KUBERNETES_STATE": str(self.bin.parent / "state"),
            "STRANDLINE_KUBERNETES_SYSTEM_PATH": "",
        }
        done = subprocess.run([str(SCRIPT), "check"], env=environment, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stderr


def _which(name: str) -> str:
    found = [Path(folder) / name for folder in os.environ["PATH"].split(":")]
    return str(next(path for path in found if path.exists()))


def test_a_machine_with_everything_is_not_refused(tmp_path: Path) -> None:
    """On a machine with everything nothing is printed, and nothing is created."""
    assert Machine(tmp_path).check() == (0, "")
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("place", "name", "package"),
    [
        ("plugins", "host-local", "containernetworking-plugins"),
        ("plugins", "portmap", "containernetworking-plugins"),
        ("bin", "etcd", "etcd-server"),
        ("bin", "ctr", "containerd"),
        ("bin", "iptables-save", "iptables"),
        ("bin", "docker", "docker.io"),
    ],
)
def test_what_is_missing_is_named_with_its_package(tmp_path: Path, place: str, name: str, package: str) -> None:
    """A missing program ends with exit code 1 and the package to install, also where the package has no program."""
    machine = Machine(tmp_path)
    (getattr(machine, place) / name).unlink()
    code, said = machine.check()

    assert code == 1
    assert name in said
    assert said.rstrip().endswith(f"on Debian: apt-get install {package}")


def test_everything_that_is_missing_is_named_at_once(tmp_path: Path) -> None:
    """One check is enough; a package is named once. Go is needed only where something is not built."""
    machine = Machine(tmp_path)
    for path in (machine.plugins / "bridge", machine.plugins / "loopback", machine.bin / "runc", machine.bin / "go"):
        path.unlink()
    _, built = machine.check()
    (machine.cache / "bin" / "kubelet").unlink()
    _, unbuilt = machine.check()

    assert built.rstrip().endswith("apt-get install containernetworking-plugins runc")
    assert unbuilt.rstrip().endswith("apt-get install containernetworking-plugins golang-go runc")


def test_a_docker_that_does_not_answer_is_named(tmp_path: Path) -> None:
    """A Docker daemon that does not answer is named, because the program alone does not load an image."""
    machine = Machine(tmp_path)
    (machine.bin / "docker").write_text("#!/bin/sh\necho 'no daemon here' >&2\nexit 1\n")
    code, said = machine.check()

    assert (code, said) == (1, "cluster: docker does not answer: no daemon here; start its daemon\n")


def _own_cluster(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The class under test, whose folder is not a package."""
    folder = Path(__file__).parent / "real"
    monkeypatch.syspath_prepend(str(folder))
    spec = importlib.util.spec_from_file_location("machine_under_test", folder / "machine.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.OwnCluster()


def test_the_programs_own_logs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of each, beside the verdict; without an API server no other one is queried."""
    monkeypatch.setenv("STRANDLINE_KUBERNETES_STATE", str(tmp_path / "state"))
    (tmp_path / "state" / "log").mkdir(parents=True)
    (tmp_path / "state" / "log" / "kubelet0.log").write_text("x" * 300_000 + "the reason")
    (tmp_path / "out").mkdir()
    cluster = _own_cluster(monkeypatch)
    can_be_asked = cluster.evidence(tmp_path / "out")
    (tmp_path / "state" / "admin.conf").write_text("")

    assert not can_be_asked
    assert cluster.evidence(tmp_path / "out")
    kept = (tmp_path / "out" / "cluster-kubelet0.log").read_text()
    assert len(kept) == 200_000 and kept.endswith("the reason")


def test_the_clients_have_every_module_that_their_image_lacks() -> None:
    """What the files in their pod import of packages that are not in the image is mounted beside them."""
    (volume,) = [
        one["configMap"]["items"]
        for one in yaml.safe_load((ROOT / "tests/kubernetes/real/load.yaml").read_text())["spec"]["volumes"]
        if "configMap" in one
    ]
    mounted = {item["path"] for item in volume}
    sources = [ROOT / folder / path for path in mounted for folder in ("tests/chaos", "services")]
    wanted = {
        f"{node.module.replace('.', '/')}.py"
        for source in sources
        if source.exists()
        for node in ast.walk(ast.parse(source.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in ("harness", "strandline_sim")
        if node.module
    }

    assert {"harness/history_file.py"} <= wanted <= mounted
