"""Which `STRANDLINE_...` variables there are, so that one that is misspelled is refused and not ignored.

Invariant: a name of any service or command is known to every service, because processes share environments; what
Kubernetes and container links put there by themselves is no setting of anybody.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

PREFIX = "STRANDLINE_"

OF_OTHERS = frozenset(
    PREFIX + name
    for name in (
        # Of commands with --bootstrap and of the analytics.
        "BOOTSTRAP PROFILE ANALYTICS_MEMORY "
        # Of data nodes and the controller.
        "ADVERTISE AUTO_LEADER_REBALANCE_ENABLE BIND CONTROLLERS CONTROLLER_ID DATA_DIR DEFAULT_PARTITIONS "
        "DEFAULT_REPLICATION_FACTOR DURABILITY ETCD_CA ETCD_CERT ETCD_ENDPOINTS ETCD_KEY ETCD_PASSWORD_FILE "
        "ETCD_PREFIX ETCD_QUOTA_BYTES ETCD_USER EXPORT_DIR EXPORT_FILE_BYTES EXPORT_FORMAT EXPORT_RING_EVENTS "
        "EXPORT_ROLL_S EXPORT_URI EXPORT_WAITING_BYTES FETCH_HW FSYNC_THREADS GROUP_HEARTBEAT_INTERVAL_MS "
        "GROUP_MAX_SESSION_TIMEOUT_MS GROUP_MAX_SIZE GROUP_MIN_SESSION_TIMEOUT_MS GROUP_SESSION_TIMEOUT_MS "
        "GROUP_STATE_PARTITIONS HEALTH_BIND HEARTBEAT_INTERVAL_MS HIGH_WATERMARK_CHECKPOINT_INTERVAL_MS INSECURE "
        "INTERNAL_ADVERTISE INTERNAL_BIND INTERNAL_REPLICATION_FACTOR ISR_JOIN LEADER_IMBALANCE_CHECK_INTERVAL_MS "
        "LOG_FORMAT LOG_LEVEL LOG_SNAPSHOT_EVERY LOW_SPACE_BYTES METRICS_BIND OFFSETS_RETENTION_MS "
        "METRICS_PER_PARTITION METRICS_TLS NODE_ID NODE_ID_FROM_HOSTNAME PART_BYTES PING_EVERY_MS PING_TIMEOUT_MS "
        "PROBE_DEADLINE_MS PURGATORY_MAX_BYTES PURGATORY_MAX_ENTRIES RACK REFLECTION REIGN_LEASE_S "
        "REPLICA_FETCH_MAX_BYTES REPLICA_FETCH_WAIT_MAX_MS REPLICA_LAG_TIME_MAX_MS RETENTION_CHECK_INTERVAL_MS ROLES "
        "SAMPLE_INTERVAL_MS SAMPLE_MAX_INTERVAL_MS SEGMENT_BYTES SESSION_TIMEOUT_MS SHUTDOWN_DEADLINE_MS STORE "
        "TICK_MS TLS_CA TLS_CERT TLS_KEY TRANSACTIONAL_ID_EXPIRATION_MS TRANSACTION_MAX_TIMEOUT_MS "
        "TRANSACTION_STATE_PARTITIONS TRUNCATION UNCLEAN_RECOVERY_TIMEOUT_MS WATCH_BACKLOG WATCH_MERGE_MS WORKERS "
        # Of the console.
        "ALLOW_CHANGES HOSTS HTTPS_CERT HTTPS_KEY LOOK_DEADLINE_MS LOOK_INTERVAL_MS MAX_BROWSERS PARTITIONS_FOLLOWED "
        "METADATA_STALE_MS REPORT TRANSITIONS_KEPT "
        # Of the images and of the tests.
        "VERSION CLOCK SCHEDULES KUBERNETES_CACHE KUBERNETES_STATE"
    ).split()
)
"""Every name that means something to some part of the project; a test compares it with the settings themselves."""

_LINK = re.compile(
    rf"^{PREFIX}(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$"
)


def unknown_variable(environment: Iterable[str], own: Iterable[str]) -> str | None:
    """One sentence about the first `STRANDLINE_...` variable that no setting has; None if there is none.

    ``own`` are the names of the asking service's settings, as fields.
    """
    known = OF_OTHERS | {PREFIX + name.upper() for name in own}
    for name in sorted(environment):
        if name.startswith(PREFIX) and name not in known and not _LINK.match(name):
            words = [word.removeprefix(PREFIX) for word in sorted(known)]
            near = difflib.get_close_matches(name.removeprefix(PREFIX), words, n=1)
            meant = f"; did you mean {PREFIX}{near[0]}?" if near else "; `strandline settings` lists those there are"
            return f"variable {name} is no setting{meant}"
    return None
