"""What is applied from the manifests that ship: every overlay without creating it, claims, certificates, the Job.

Invariant: an object is skipped only where the cluster does not know its kind, and then by name; the Job is the
CronJob's own pod, and only its arguments differ, because no hour has closed yet.
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import yaml
from kubectl import Failed, get, in_namespace, kubectl, until
from machine import HOME_LABEL

from strandline.cli.local.authority import Authority, issue, new_authority
from strandline.rpc.permissions import CallerRole, Identity

_SHIPPED = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes"
OVERLAYS = _SHIPPED / "overlays"
_ETCD, _DAYS = "strandline-etcd", 1
_JOB, _SCALE_IN = "analytics-once", "strandline-scale-in"
_WORDS = ["analytics", "report", "--input", "/exports/state", "--out", "/exports/report.html", "--memory", "1g"]


def dry_run_all() -> list[str]:
    """One line per overlay.

    Raises:
        Failed: the server rejects an object.
    """
    known = _known_kinds()
    kubectl("apply", "--filename", str(OVERLAYS / "local" / "namespace.yaml"))
    return [_dry_run(folder, known) for folder in sorted(OVERLAYS.iterdir()) if folder.is_dir()]


def _known_kinds() -> set[tuple[str, str]]:
    """(apiVersion, kind) of everything that the cluster serves."""
    lines = kubectl("api-resources", "--no-headers").splitlines()
    return {(words[-3], words[-1]) for words in (line.split() for line in lines) if len(words) >= 4}


def _dry_run(folder: Path, known: set[tuple[str, str]]) -> str:
    objects: list[dict[str, Any]] = list(yaml.safe_load_all(kubectl("kustomize", str(folder))))
    served = [each for each in objects if (each["apiVersion"], each["kind"]) in known]
    skipped = [f"{each['kind']}/{each['metadata']['name']}" for each in objects if each not in served]
    said = kubectl("apply", "--dry-run=server", "--filename", "-", given=yaml.safe_dump_all(served))
    if said.count("(server dry run)") != len(served):
        raise Failed(f"{folder.name}: {len(served)} objects, and the server said: {said}")
    left = f"; skipped, their kinds are not here: {', '.join(skipped)}" if skipped else ""
    return f"{folder.name}: {len(served)} objects accepted{left}"


def bind_shared_claim(overlay: Path) -> None:
    """Binds the claim for exports before the pods that use it.

    While it is unbound, a pod's own disk can be bound to a machine which another pod takes before this one gets there:
    the scheduler binds one volume after the other, and local disks do not move.
    """
    objects = [each for each in yaml.safe_load_all(kubectl("kustomize", str(overlay))) if each]
    claims = [each for each in objects if each["kind"] == "PersistentVolumeClaim"]
    kubectl("apply", "--filename", "-", given=yaml.safe_dump_all(claims))
    for claim in claims:
        in_namespace(
            "wait", "--for=jsonpath={.status.phase}=Bound", f"pvc/{claim['metadata']['name']}", "--timeout=60s"
        )


def give_certificates() -> None:
    """Make the two Secrets of components/etcd-tls, signed by an authority whose key is then forgotten.

    The test's cluster has no cert-manager; names and purposes are read from what ships for it, so that a name that is
    missing there is missing here.

    Raises:
        Failed: the API server rejects one.
    """
    manifest = _SHIPPED / "components" / "etcd-cert-manager" / "certificates.yaml"
    authority = new_authority(_ETCD, _DAYS)
    wanted = [each for each in yaml.safe_load_all(manifest.read_text()) if each["kind"] == "Certificate"]
    secrets = [_secret(authority, each["spec"]) for each in wanted]
    in_namespace("apply", "--filename", "-", given=yaml.safe_dump_all(secrets))


def _secret(authority: Authority, spec: dict[str, Any]) -> dict[str, Any]:
    identity = Identity(_ETCD, CallerRole.CONTROLLER, spec["commonName"])
    issued = issue(authority, identity, spec.get("dnsNames", ()), _DAYS)
    files = {"tls.crt": issued.cert, "tls.key": issued.key, "ca.crt": authority.pem}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": spec["secretName"]},
        "data": {name: b64encode(content).decode() for name, content in files.items()},
    }


def empty_node(node_id: int, timeout_s: float = 180.0) -> None:
    """Runs the Job of components/scale-in for one node, to its end.

    Raises:
        Failed: it failed, or did not end in time.
    """
    (job,) = yaml.safe_load_all(kubectl("kustomize", str(_SHIPPED / "components" / "scale-in")))
    settings = [f"--from-literal=NODE={node_id}", "--from-literal=THROTTLE=50MB"]
    made = in_namespace("create", "configmap", _SCALE_IN, *settings, "--dry-run=client", "--output", "yaml")
    in_namespace("apply", "--filename", "-", given=yaml.safe_dump_all([yaml.safe_load(made), job]))
    in_namespace("wait", "--for=condition=complete", f"job/{_SCALE_IN}", f"--timeout={timeout_s:g}s")
    in_namespace("delete", f"job/{_SCALE_IN}", f"configmap/{_SCALE_IN}")


def run_job(timeout_s: float = 600.0) -> str:
    """Runs the analytics Job once on the exports so far, to its end; returns its last output.

    Raises:
        Failed: it failed, or did not end in time.
    """
    template = get("cronjob", "strandline-analytics")["spec"]["jobTemplate"]["spec"]
    spec = template["template"]["spec"]
    spec["containers"][0]["args"] = _WORDS
    spec["nodeSelector"] = {HOME_LABEL: "yes"}
    template["backoffLimit"] = 0
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": _JOB}, "spec": template}
    in_namespace("apply", "--filename", "-", given=yaml.safe_dump(job))
    ended = until(_end, "the analytics Job ends", timeout_s)
    said = in_namespace("logs", f"job/{_JOB}", "--tail=3").strip().splitlines()
    if ended != "Complete":
        raise Failed(f"the analytics Job: {ended}: {' | '.join(said)}")
    return said[-1] if said else "nothing"


def _end() -> str | None:
    conditions: list[dict[str, Any]] = get("job", _JOB)["status"].get("conditions", [])
    return next((each["type"] for each in conditions if each["type"] in ("Complete", "Failed")), None)
