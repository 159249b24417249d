"""Which certificate this process shows now, and whom it believes: files that are read again as they change.

Invariant: from the first reading on there is always a certificate that worked. Files that changed into something
that cannot be used, or into another identity, change nothing but one line of the log.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import grpc

from strandline.rpc.identity import CallerRole, Identity
from strandline.rpc.tls_files import GivenPem, TlsFiles, TlsWrong, is_given, tls_files

if TYPE_CHECKING:
    # The library that reads certificates is large, and a process without TLS never needs it.
    from strandline.rpc.certificate import Material

TLS_OFF = "TLS is off: any client that reaches this process's ports may read, write and administer"
"""Said once by every process that serves without."""

_LOOK_EVERY_S = 1.0

# Of the standard library, because clients use this too; services show it as a line of theirs.
_log = logging.getLogger("strandline.tls")

_Signature = tuple[tuple[int, int, int], ...]


class Tls:
    """The certificate of one process. gRPC asks for it from threads of its own."""

    def __init__(self, files: TlsFiles, *, look_every_s: float = _LOOK_EVERY_S) -> None:
        """Read the files.

        Raises:
            TlsWrong: with one sentence.
        """
        from strandline.rpc.certificate import read_material

        self._read = read_material
        self._files = files
        self._look_every_s = look_every_s
        self._lock = threading.Lock()
        # Before the content: files that change in between are read again.
        self._signature = _signature(files)
        self._material = self._read(files)
        self._looked = time.monotonic()
        self._generation = 1
        self._https: tuple[int, ssl.SSLContext] | None = None

    @property
    def identity(self) -> Identity:
        """Whom this process's certificate names; the same for as long as the process lives."""
        return self._material.identity

    @property
    def generation(self) -> int:
        """Grows by one with every new content. Looks at the files, at most once in ``look_every_s``."""
        self._maybe_read_again()
        return self._generation

    def must_be(self, role: CallerRole, *, name: str | None = None, cluster_id: str | None = None) -> None:
        """Refuse a certificate that is somebody else's; what is None may be anything.

        Raises:
            TlsWrong: naming what the certificate should say.
        """
        ours = self.identity
        wanted = Identity(cluster_id or ours.cluster, role, name or ours.name)
        if ours != wanted:
            raise TlsWrong(f"tls_cert {self._files.cert} names {ours.uri}; this process needs one for {wanted.uri}")

    def server_credentials(self) -> grpc.ServerCredentials:
        """For a port whose callers must show a certificate of the authority; checked again for every connection."""
        shown = self._generation

        def fetch() -> grpc.ServerCertificateConfiguration | None:
            nonlocal shown
            generation = self.generation
            if generation == shown:
                return None
            shown = generation
            return _configuration(self._material)

        first: grpc.ServerCertificateConfiguration = _configuration(self._material)
        # Its stub knows no None, which says that nothing has changed.
        return grpc.dynamic_ssl_server_credentials(first, cast(Any, fetch), require_client_authentication=True)

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """For dialling with the certificate as it is now."""
        now = self._material
        return grpc.ssl_channel_credentials(now.ca, now.key, now.cert)

    def https_context(self) -> ssl.SSLContext:
        """For a port that speaks HTTPS to callers with a certificate of the authority; asked for each connection.

        Raises:
            ssl.SSLError, OSError: the files cannot be used.
        """
        generation = self.generation
        if self._https is None or self._https[0] != generation:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.verify_mode = ssl.CERT_REQUIRED
            cert, key = self._files.cert, self._files.key
            assert isinstance(cert, Path) and isinstance(key, Path), "a service is given paths by its settings"
            context.load_cert_chain(cert, key)
            context.load_verify_locations(cadata=self._material.ca.decode("ascii"))
            self._https = (generation, context)
        return self._https[1]

    def _maybe_read_again(self) -> None:
        with self._lock:
            moment = time.monotonic()
            if moment - self._looked < self._look_every_s:
                return
            self._looked = moment
            signature = _signature(self._files)
            if signature == self._signature:
                return
            self._signature = signature
            self._read_again()

    def _read_again(self) -> None:
        try:
            fresh = self._read(self._files)
            if fresh.identity != self.identity:
                raise TlsWrong(f"tls_cert {self._files.cert} names {fresh.identity.uri} and not {self.identity.uri}")
        except TlsWrong as error:
            _log.error("the new certificate is not used, the old one stays", extra={"fields": {"reason": str(error)}})
            return
        if fresh == self._material:
            return
        self._material = fresh
        self._generation += 1
        fields = {"identity": fresh.identity.uri, "valid_until": str(fresh.not_after)}
        _log.info("a new certificate is used", extra={"fields": fields})


def open_tls(tls_cert: str | Path | bytes, tls_key: str | Path | bytes, tls_ca: str | Path | bytes) -> Tls | None:
    """What three settings ask for, paths or PEM as bytes; None when they are empty.

    Raises:
        TlsWrong: with one sentence.
    """
    if not any(is_given(one) for one in (tls_cert, tls_key, tls_ca)):
        return None
    return Tls(tls_files(tls_cert, tls_key, tls_ca))


def https_of(tls: Tls | None, *, wanted: bool) -> Callable[[], ssl.SSLContext] | None:
    """What a port is given that speaks HTTPS where ``wanted``; None for plain HTTP."""
    return tls.https_context if tls is not None and wanted else None


def _configuration(material: Material) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(material.key, material.cert)], material.ca)


def _signature(files: TlsFiles) -> _Signature:
    """What changes when a file is replaced or written; an absent file is a state as any other."""
    found = []
    for path in files.all:
        if isinstance(path, GivenPem):
            continue
        try:
            status = path.stat()
        except OSError:
            found.append((0, 0, 0))
        else:
            found.append((status.st_mtime_ns, status.st_size, status.st_ino))
    return tuple(found)
