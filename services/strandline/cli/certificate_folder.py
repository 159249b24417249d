"""How the certificates of a cluster lie on a disk: a folder for each holder, named as Kubernetes names them.

Invariant: nothing that exists is written over, except by a renewal, which replaces a certificate and its key and
leaves no moment without either. Keys are readable by their owner alone.

    DIR/authority/ca.crt, ca.key       signs; the key is needed for new certificates only and belongs on no server
    DIR/controller/tls.crt, tls.key, ca.crt
    DIR/node-1/...  DIR/client/...  DIR/admin/...
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from strandline.cli.authority import Authority, Issued, issue, key_pem, new_authority, read_authority, write_new
from strandline.rpc.permissions import CallerRole, Identity, NoIdentity, only_identity

CERT, KEY, CA = "tls.crt", "tls.key", "ca.crt"
_AUTHORITY, _AUTHORITY_KEY = "authority", "ca.key"
_PUBLIC, _SECRET = 0o644, 0o600


class NoCertificates(ValueError):
    """A folder holds no authority or no certificate of ours; the sentence says which."""


@dataclass(frozen=True, slots=True)
class Holder:
    """One certificate as it lies in its folder."""

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
    """The authority that lies there.

    Raises:
        NoCertificates: there is none that can be used.
    """
    home = directory / _AUTHORITY
    try:
        return read_authority(home / CA, home / _AUTHORITY_KEY)
    except (OSError, ValueError) as error:
        raise NoCertificates(f"{home} holds no authority: {error}; `strandline certs new` makes one") from error


def add(directory: Path, authority: Authority, identity: Identity, hosts: Sequence[str], days: int) -> Holder:
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


def renew(authority: Authority, holder: Holder, days: int) -> Holder:
    """Replace a holder's certificate and key by new ones with the same names."""
    issued = issue(authority, holder.identity, holder.hosts, days)
    _replace_pair(holder.folder, issued)
    return _read_holder(holder.folder)


def holders(directory: Path) -> Iterator[Holder]:
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


def _read_holder(folder: Path) -> Holder:
    path = folder / CERT
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        identity = only_identity(names.get_values_for_type(x509.UniformResourceIdentifier))
    except (OSError, ValueError, x509.ExtensionNotFound, NoIdentity) as error:
        raise NoCertificates(f"{path} is no certificate of ours: {error}") from error
    addresses = [str(address) for address in names.get_values_for_type(x509.IPAddress)]
    return Holder(folder, identity, (*names.get_values_for_type(x509.DNSName), *addresses), certificate)


def refuse_existing(folder: Path) -> None:
    """See that a holder's folder is free.

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
