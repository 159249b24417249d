"""The two Secrets of components/etcd-tls, as cert-manager would make them of components/etcd-cert-manager.

The test's cluster has no cert-manager; names and purposes are read from the manifests that ship, so that a name that
is missing there is missing here.
"""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from typing import Any

import yaml
from kubectl import in_namespace

from strandline.cli.local.authority import Authority, issue, new_authority
from strandline.rpc.permissions import CallerRole, Identity

MANIFEST = Path(__file__).parents[3] / "deploy/kubernetes/components/etcd-cert-manager/certificates.yaml"
_CLUSTER = "strandline-etcd"
_DAYS = 1


def give_certificates() -> None:
    """Make the Secrets, signed by an authority whose key is then forgotten.

    Raises:
        Failed: the API server rejects one.
    """
    authority = new_authority(_CLUSTER, _DAYS)
    wanted = [each for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] == "Certificate"]
    secrets = [_secret(authority, each["spec"]) for each in wanted]
    in_namespace("apply", "--filename", "-", given=yaml.safe_dump_all(secrets))


def _secret(authority: Authority, spec: dict[str, Any]) -> dict[str, Any]:
    identity = Identity(_CLUSTER, CallerRole.CONTROLLER, spec["commonName"])
    issued = issue(authority, identity, spec.get("dnsNames", ()), _DAYS)
    files = {"tls.crt": issued.cert, "tls.key": issued.key, "ca.crt": authority.pem}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": spec["secretName"]},
        "data": {name: b64encode(content).decode() for name, content in files.items()},
    }
