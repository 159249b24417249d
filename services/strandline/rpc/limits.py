"""What one peer may ask of another: message limits, backlogs of streams, keepalive, reconnection.

Invariant: limits and keepalive are set on both ends together; a client that pings faster than its server
allows is cut off with too_many_pings, and a limit on one side alone is gRPC's 4 MB on the other.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_MESSAGE_BYTES = (8 << 20) + (64 << 10)
"""Largest gRPC message, in both directions on both ports (RELIABILITY.md#limits)."""

MAX_METADATA_BYTES = 16 << 10
MAX_CONCURRENT_STREAMS = 100
"""Open calls per connection (RELIABILITY.md#limits)."""

STREAM_BACKLOG_ANSWERS = 1_000
"""Answers that one stream may have waiting for its reader; beyond it the stream is not read further."""
PRODUCE_STREAM_OUTSTANDING = 1_000
"""Unanswered messages of one ProduceStream; beyond it the stream is not read further."""

Options = list[tuple[str, int]]

NO_PROXY: Options = [("grpc.enable_http_proxy", 0)]
"""For every channel: gRPC would follow http_proxy and its like in the environment, which are for other connections."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keepalive:
    """How soon a silent peer is given up. All three are needed: a stopped process still acks TCP."""

    ping_every_ms: int = 2_000
    ping_timeout_ms: int = 2_000


def message_limits() -> Options:
    """Both limits, for servers and channels alike."""
    return [
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_metadata_size", MAX_METADATA_BYTES),
    ]


def keepalive_pings(keepalive: Keepalive) -> Options:
    """Pings as both ends of an internal connection send them."""
    return [
        ("grpc.keepalive_time_ms", keepalive.ping_every_ms),
        ("grpc.keepalive_timeout_ms", keepalive.ping_timeout_ms),
        ("grpc.http2.ping_timeout_ms", keepalive.ping_timeout_ms),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]


def unacknowledged(give_up_ms: int = 5_000) -> Options:
    """When a client gives up a connection whose peer acknowledges no TCP data: it dials again instead.

    Without it a connection that was cut is tried again by TCP's doubling timer only, tens of seconds after the
    cut has healed. gRPC takes the keepalive time-out for TCP_USER_TIMEOUT; its pings, which a server allows
    every five minutes at most, stay rarer than that.
    """
    return [("grpc.keepalive_time_ms", 600_000), ("grpc.keepalive_timeout_ms", give_up_ms)]


PING_STRIKES = 1_000
"""Pings in a row that come too soon, with no answer in between, before a connection is ended with too_many_pings. A
peer that keeps to `keepalive_pings` has none; gRPC's own probes of the bandwidth come with answers."""


def keepalive_tolerance(keepalive: Keepalive) -> Options:
    """What a server must allow so that `keepalive_pings` are welcome; half the interval leaves slack."""
    return [
        ("grpc.http2.min_ping_interval_without_data_ms", keepalive.ping_every_ms // 2),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", keepalive.ping_every_ms // 2),
        ("grpc.http2.max_ping_strikes", PING_STRIKES),
    ]


TLS_DIAL_MS = 2_000
"""How long a connection with TLS may take to be made: three round trips, and signatures on a machine that is busy."""


def reconnection(
    first_ms: int = 50, most_ms: int = 1_000, ask_name_ms: int = 250, *, dial_ms: int | None = None
) -> Options:
    """How soon a channel dials again; gRPC's own default of up to two minutes would be an outage.

    ``ask_name_ms`` is the least time between two questions for the address of a name: a peer that is started elsewhere
    keeps its name and gets another address, and gRPC's own 30 s would keep everybody at the old one for so long.
    ``dial_ms`` is how long one attempt may take, ``first_ms`` if it is not given: gRPC takes its least back-off for
    that, and says nothing of it when an attempt that would have succeeded is broken off. It does not delay the next.
    """
    return [
        ("grpc.dns_min_time_between_resolutions_ms", ask_name_ms),
        ("grpc.initial_reconnect_backoff_ms", first_ms),
        ("grpc.min_reconnect_backoff_ms", dial_ms or first_ms),
        ("grpc.max_reconnect_backoff_ms", most_ms),
    ]
