"""Options of a server or a channel: gRPC's channel arguments by their names, and TLS.

Invariant: an argument that is not supported is refused with its name; none is silently ignored.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import grpc

from strandline.transport.frames import Code

Argument = tuple[str, Any]
AuthContext = Mapping[str, tuple[bytes, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options, with gRPC's defaults except for the handshake's time limit and the number of streams."""

    max_receive_bytes: int = 4 << 20
    max_send_bytes: int = (1 << 32) - 1
    max_metadata_bytes: int = 16 << 10
    max_streams: int = 100
    handshake_s: float = 20.0
    """Time limit until a connection speaks HTTP/2, including TLS."""
    ping_every_s: float | None = None
    """The silence after which a ping is sent; None: never."""
    ping_timeout_s: float = 20.0
    ping_without_calls: bool = False
    least_ping_interval_s: float = 300.0
    """A ping that comes sooner after the last one, with no answer of ours in between, is a strike."""
    ping_strikes: int = 2
    first_backoff_s: float = 1.0
    most_backoff_s: float = 120.0
    dial_s: float = 20.0
    ask_name_s: float = 30.0
    """How long the resolved addresses of a name are used."""
    user_agent: str = ""

    @property
    def tcp_user_timeout_ms(self) -> int | None:
        """How long sent bytes may stay unacknowledged: like gRPC, the ping time-out if pings are sent, else None."""
        return None if self.ping_every_s is None else int(self.ping_timeout_s * 1000)


def _unlimited(value: int) -> int:
    return value if value >= 0 else (1 << 32) - 1


def _seconds(value: int) -> float:
    return value / 1000


_FIELDS: dict[str, tuple[str, Callable[[int], Any]]] = {
    "grpc.max_receive_message_length": ("max_receive_bytes", _unlimited),
    "grpc.max_send_message_length": ("max_send_bytes", _unlimited),
    "grpc.max_metadata_size": ("max_metadata_bytes", int),
    "grpc.max_concurrent_streams": ("max_streams", int),
    "grpc.server_handshake_timeout_ms": ("handshake_s", _seconds),
    "grpc.keepalive_time_ms": ("ping_every_s", _seconds),
    "grpc.keepalive_timeout_ms": ("ping_timeout_s", _seconds),
    "grpc.keepalive_permit_without_calls": ("ping_without_calls", bool),
    "grpc.http2.min_recv_ping_interval_without_data_ms": ("least_ping_interval_s", _seconds),
    "grpc.http2.max_ping_strikes": ("ping_strikes", int),
    "grpc.initial_reconnect_backoff_ms": ("first_backoff_s", _seconds),
    "grpc.max_reconnect_backoff_ms": ("most_backoff_s", _seconds),
    "grpc.min_reconnect_backoff_ms": ("dial_s", _seconds),
    "grpc.dns_min_time_between_resolutions_ms": ("ask_name_s", _seconds),
    "grpc.primary_user_agent": ("user_agent", str),
}
_SAME_HERE: dict[str, Any] = {
    # This transport reads no proxy variables and shares neither ports nor connections, just as these require.
    "grpc.enable_http_proxy": 0,
    "grpc.so_reuseport": 0,
    "grpc.use_local_subchannel_pool": 1,
    # Pings are sent whether or not there is data.
    "grpc.http2.max_pings_without_data": 0,
}
_NEEDLESS = frozenset(
    (
        # Only keepalive sends pings with a time-out, and it has its own.
        "grpc.http2.ping_timeout_ms",
        # Limits how often pings are sent without data; keepalive never sends them sooner.
        "grpc.http2.min_ping_interval_without_data_ms",
        # Limit calls that are not handed over yet; here each call is handed over or refused as it comes.
        "grpc.server.max_pending_requests",
        "grpc.server.max_pending_requests_hard_limit",
    )
)


def options_of(arguments: Iterable[Argument] | None) -> Options:
    """Convert gRPC's channel arguments into options.

    Raises:
        ValueError: an argument or a value is not supported; the message names it.
    """
    found: dict[str, Any] = {}
    for name, value in arguments or ():
        if name in _SAME_HERE:
            if value != _SAME_HERE[name]:
                raise ValueError(f"channel argument {name}={value}: this transport can only do {_SAME_HERE[name]}")
        elif name in _FIELDS:
            field, convert = _FIELDS[name]
            found[field] = convert(value)
        elif name not in _NEEDLESS:
            raise ValueError(f"channel argument {name} has no meaning here; leave it out, or use grpc_transport=grpcio")
    return replace(Options(), **found)


# ---- security


@dataclass(frozen=True, slots=True)
class Security:
    """Credentials of either side. The context is requested for each connection, so that certificates may change."""

    context: Callable[[], ssl.SSLContext]
    identify: Callable[[bytes], AuthContext] = lambda _der: {}
    """Returns the properties in a verified peer's certificate (DER), in the form of `auth_context`."""
    call_metadata: Callable[[], Iterable[tuple[str, str]]] = tuple
    """Returns the metadata that each call of a client carries in addition to its own, when the call begins."""


NO_AUTH: AuthContext = {}


# ---- statuses

STATUSES: dict[bytes, grpc.StatusCode] = {b"%d" % status.value[0]: status for status in grpc.StatusCode}
"""gRPC's statuses by their text in the field ``grpc-status``."""

OF_RESET: dict[int, grpc.StatusCode] = {
    Code.REFUSED_STREAM: grpc.StatusCode.UNAVAILABLE,
    Code.CANCEL: grpc.StatusCode.CANCELLED,
    Code.ENHANCE_YOUR_CALM: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Code.INADEQUATE_SECURITY: grpc.StatusCode.PERMISSION_DENIED,
}
"""The status of a call whose stream was reset, by the code; INTERNAL for others (PROTOCOL-HTTP2, "Errors")."""
OF_HTTP = {
    400: grpc.StatusCode.INTERNAL,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.UNIMPLEMENTED,
    429: grpc.StatusCode.UNAVAILABLE,
    502: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.UNAVAILABLE,
}
"""The status of a call whose answer is not gRPC, by HTTP's status; UNKNOWN for others (http-grpc-status-mapping)."""
