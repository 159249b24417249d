"""The certificates of a cluster on disk: a folder for each holder, with the file names that Kubernetes uses.

Invariant: existing files are never overwritten except by a renewal, which replaces a certificate and its key without a
moment that has neither. Only their owner can read keys.

    DIR/authority/ca.crt, ca.key       signs; the key is needed for new certificates only and belongs on no server
    DIR/controller/tls.crt, tls.key, ca.crt
    DIR/node-1/...  DIR/client/...  DIR/admin/...
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from strandline.cli.connect import TlsOptions
from strandline.cli.local.authority import Authority, Issued, issue, key_pem, new_authority, read_authority, write_new
from strandline.rpc.permissions import CallerRole, Identity, NoIdentity, only_identity

CERT, KEY, CA = "tls.crt", "tls.key", "ca.crt"
_AUTHORITY, _AUTHORITY_KEY = "authority", "ca.key"
_PUBLIC, _SECRET = 0o644, 0o600


class NoCertificates(ValueError):
    """A folder has no authority or none of our certificates; the message says which."""


@dataclass(frozen=True, slots=True)
class CertificateHolder:
    """One certificate in its folder."""

    folder: Path
    identity: Identity
    hosts: tuple[str, ...]
    certificate: x509.Certificate


def folder_name(identity: Identity) -> str:
    """``node-1`` for a replica, the role for the only one of its kind, else the id."""
    if identity.role is CallerRole.REPLICA:
        return f"node-{identity.name}"
    return identity.name


def begin(directory: Path, cluster: str, days: int) -> Authority:
    """Make the authority of a new cluster.

    Raises:
        FileExistsError: there is one.
    """
    authority = new_authority(cluster, days)
    home = directory / _AUTHORITY
    home.mkdir(parents=True, exist_ok=True)
    write_new(home / _AUTHORITY_KEY, key_pem(authority.key), _SECRET)
    write_new(home / CA, authority.pem, _PUBLIC)
    return authority


def authority_of(directory: Path) -> Authority:
    """The authority in a folder.

    Raises:
        NoCertificates: there is none that can be used.
    """
    home = directory / _AUTHORITY
    try:
        return read_authority(home / CA, home / _AUTHORITY_KEY)
    except (OSError, ValueError) as error:
        raise NoCertificates(f"{home} holds no authority: {error}; `strandline certs new` makes one") from error


def add(
    directory: Path, authority: Authority, identity: Identity, hosts: Sequence[str], days: int
) -> CertificateHolder:
    """Make a holder's folder with certificate, key and the authority's certificate.

    Raises:
        FileExistsError: one of the files is there.
    """
    folder = directory / folder_name(identity)
    refuse_existing(folder)
    folder.mkdir(parents=True, exist_ok=True)
    issued = issue(authority, identity, list(dict.fromkeys(hosts)), days)
    write_new(folder / KEY, issued.key, _SECRET)
    write_new(folder / CERT, issued.cert, _PUBLIC)
    write_new(folder / CA, authority.pem, _PUBLIC)
    return _read_holder(folder)


def renew(authority: Authority, holder: CertificateHolder, days: int) -> CertificateHolder:
    """Replace a holder's certificate and key by new ones with the same names."""
    issued = issue(authority, holder.identity, holder.hosts, days)
    _replace_pair(holder.folder, issued)
    return _read_holder(holder.folder)


def holders(directory: Path) -> Iterator[CertificateHolder]:
    """Every certificate of ours below a folder, by folder's name."""
    for path in sorted(directory.glob(f"*/{CERT}")):
        yield _read_holder(path.parent)


def cluster_of(directory: Path) -> str:
    """The cluster that the folder's certificates are for.

    Raises:
        NoCertificates: there are none, or of several.
    """
    clusters = {holder.identity.cluster for holder in holders(directory)}
    if len(clusters) != 1:
        raise NoCertificates(f"{directory} holds certificates of {len(clusters)} clusters; give --cluster")
    return clusters.pop()


def _read_holder(folder: Path) -> CertificateHolder:
    path = folder / CERT
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        identity = only_identity(names.get_values_for_type(x509.UniformResourceIdentifier))
    except (OSError, ValueError, x509.ExtensionNotFound, NoIdentity) as error:
        raise NoCertificates(f"{path} is not a certificate of ours: {error}") from error
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    return CertificateHolder(folder, identity, (*names.get_values_for_type(x509.DNSName), *addresses), certificate)


def refuse_existing(folder: Path) -> None:
    """Check that a holder's folder has no certificate yet.

    Raises:
        FileExistsError: one of its files is there.
    """
    for name in (KEY, CERT, CA):
        if (folder / name).exists():
            raise FileExistsError(errno.EEXIST, "exists", str(folder / name))


def _replace_pair(folder: Path, issued: Issued) -> None:
    """Key first: a reader that looks in between finds a pair that does not match, keeps the old one and looks again."""
    for name, content, mode in ((KEY, issued.key, _SECRET), (CERT, issued.cert, _PUBLIC)):
        fresh = folder / f"{name}.new"
        fresh.unlink(missing_ok=True)
        write_new(fresh, content, mode)
        fresh.replace(folder / name)


# ---- local_tls
# Which certificates a cluster on one machine uses: its own authority's, made when they are first needed.
#
# Invariant: certificates name the cluster whose data is beside them; existing ones are used as they are.
#
#     DIR/certs/controller, node-1 ..., client, admin       as `strandline certs new` would make them

FOLDER = "certs"
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
_DAYS = 365
_AUTHORITY_DAYS = 3650
_META_NAME = "meta.properties"


def ensure_certificates(directory: Path, node_ids: Iterable[int], hosts: Sequence[str] = LOOPBACK_HOSTS) -> Path:
    """The folder with a certificate for every process and client, the absent ones made; services have ``hosts``.

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
            add(folder, authority, identity, hosts if is_server else (), _DAYS)
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
