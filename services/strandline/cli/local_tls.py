"""Which certificates a cluster on one machine uses: its own authority's, made when they are first needed.

Invariant: certificates name the cluster whose data lies beside them; those that exist are used as they are.

    DIR/certs/controller, node-1 ..., client, admin       as `strandline certs new` would make them
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import Path

from strandline.cli.certificate_folder import CA, CERT, KEY, add, authority_of, begin, cluster_of, folder_name, holders
from strandline.cli.over_tls import TlsOptions
from strandline.rpc.permissions import CallerRole, Identity

FOLDER = "certs"
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
_DAYS = 365
_AUTHORITY_DAYS = 3650
_META_NAME = "meta.properties"


def ensure_certificates(directory: Path, node_ids: Iterable[int]) -> Path:
    """The folder with a certificate for everybody, the absent ones made.

    Raises:
        NoCertificates: the folder's authority cannot be used.
    """
    folder = directory / FOLDER
    if any(holders(folder)):
        authority, cluster = authority_of(folder), cluster_of(folder)
    else:
        cluster = _stored_cluster(directory) or str(uuid.uuid4())
        authority = begin(folder, cluster, _AUTHORITY_DAYS)
    wanted = [
        Identity(cluster, CallerRole.CONTROLLER, "controller"),
        *(Identity(cluster, CallerRole.REPLICA, str(node_id)) for node_id in node_ids),
        Identity(cluster, CallerRole.CLIENT, "client"),
        Identity(cluster, CallerRole.ADMIN, "admin"),
    ]
    for identity in wanted:
        is_server = identity.role in (CallerRole.CONTROLLER, CallerRole.REPLICA)
        if not (folder / folder_name(identity) / CERT).exists():
            add(folder, authority, identity, LOOPBACK_HOSTS if is_server else (), _DAYS)
    return folder


def tls_of(folder: Path, holder: str) -> TlsOptions:
    """One holder's files, as settings and as options."""
    home = folder / holder
    return TlsOptions(tls_cert=str(home / CERT), tls_key=str(home / KEY), tls_ca=str(home / CA))


def _stored_cluster(directory: Path) -> str | None:
    """The id of the cluster whose nodes lived here without TLS; None for a new one."""
    for path in sorted(directory.glob(f"node-*/{_META_NAME}")):
        for line in path.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition("=")
            if name == "cluster.id" and value:
                return value
    return None
