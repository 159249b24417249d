"""Decides what is said of when a setting is worth another value than its default.

Invariant: every setting of every service has one sentence here, and every sentence belongs to a setting; a test
compares, so that a new setting brings its advice with it.
"""

from __future__ import annotations

_RULE = "Never after the first start; the whole cluster has one value."
_TLS = "As soon as anything beyond this machine can reach the port."

SHARED: dict[str, str] = {
    "tls_cert": _TLS,
    "tls_key": "With `tls_cert`.",
    "tls_ca": "With `tls_cert`.",
    "insecure": "Only where the network itself keeps strangers out, as between containers of one test.",
    "health_bind": "Where something probes: Kubernetes, a load balancer, a supervisor.",
    "metrics_bind": "Where Prometheus scrapes.",
    "log_format": "`json` where a terminal is only lent; `text` to read a file yourself.",
    "log_level": "`warning` if only what somebody may want to look at shall be kept.",
    "reflection": "Off, if callers that may connect must not learn the contract by asking.",
    "ping_every_ms": "Larger on links that are billed by the packet; a hanging peer is then noticed later.",
    "ping_timeout_ms": "Larger if peers pause that long (a frozen virtual machine) and should not be given up.",
    "export_dir": "To ask afterwards what happened; a directory that Spark can read.",
    "export_uri": "The same, for an object store.",
    "export_format": "`jsonl` where pyarrow is not installed; larger and slower to read.",
    "export_roll_s": "Smaller for fresher data in more and smaller files.",
    "export_file_bytes": "Smaller to save memory, larger for fewer files on a very busy node.",
    "export_waiting_bytes": "Larger to survive a longer outage of the destination.",
    "export_ring_events": "Larger if `strandline_export_dropped_total` grows.",
}
"""What services have in common."""

REPLICA: dict[str, str] = SHARED | {
    "node_id": "Given to each node once, for ever.",
    "node_id_from_hostname": "In a StatefulSet, whose pods differ in nothing but their names.",
    "data_dir": "A volume of its own for each node.",
    "controllers": "The controller's address for nodes.",
    "bind": "A fixed port and an address that clients reach, on every machine but a developer's.",
    "internal_bind": "A fixed port and an address that nodes reach, best in a network without clients.",
    "advertise": "If clients reach the node by another name or port than it binds: containers, NAT, `0.0.0.0`.",
    "internal_advertise": "The same, for nodes and the controller.",
    "metrics_per_partition": "With up to a few thousand partitions, if lag must be seen for each of them.",
    "roles": "`follower` for an observer: a copy far away that never leads and never counts.",
    "rack": "The zone or the host's rack, so that the replicas of a partition are placed apart.",
    "truncation": _RULE,
    "durability": _RULE,
    "replica_lag_time_max_ms": "Smaller to acknowledge sooner past a slow follower, at the price of more shrinks.",
    "replica_fetch_wait_max_ms": "Rarely; smaller tells followers of a new HW sooner on idle partitions.",
    "replica_fetch_max_bytes": "Larger on links with a long round trip.",
    "high_watermark_checkpoint_interval_ms": "Rarely; it only shortens what a restart looks at.",
    "retention_check_interval_ms": "Smaller if `retention.bytes` must hold closely.",
    "purgatory_max_entries": "Larger if producers see THROTTLING_QUOTA_EXCEEDED and memory is free.",
    "purgatory_max_bytes": "The same; it bounds memory.",
    "segment_bytes": "Smaller if retention should free space in smaller steps; more files then.",
    "low_space_bytes": "At least what followers may receive in the time you need to react.",
    "tick_ms": "Rarely; it is the granularity of every deadline.",
    "fsync_threads": "Larger on disks that sync many files at once and hold many partitions.",
    "shutdown_deadline_ms": "Larger with many partitions; keep it below the supervisor's own patience.",
    "sample_interval_ms": "Larger for smaller exports; lag and HW are then seen less closely.",
    "sample_max_interval_ms": "Larger if most partitions are idle for ever.",
}
"""Of a data node."""

CONTROLLER: dict[str, str] = SHARED | {
    "data_dir": "A volume of its own, backed up.",
    "bind": "A fixed port and an address that clients reach, on every machine but a developer's.",
    "internal_bind": "To keep nodes' calls on a port that clients do not reach.",
    "truncation": _RULE,
    "durability": _RULE,
    "session_timeout_ms": "Smaller for a faster failover when a machine vanishes; not below the longest pause.",
    "heartbeat_interval_ms": "A quarter of the session time-out or less.",
    "tick_ms": "Smaller with session time-outs below a second.",
    "auto_leader_rebalance_enable": "Off, if leadership should move only when you say so.",
    "leader_imbalance_check_interval_ms": "Larger, if moving back at once disturbs.",
    "default_partitions": "To what most topics of yours have.",
    "default_replication_factor": "To what most topics of yours have; 3 loses nothing when one machine dies for good.",
    "unclean_recovery_timeout_ms": "Only where being available matters more than acknowledged records.",
    "watch_backlog": "Larger if watchers are cut off while many topics are created at once.",
    "probe_deadline_ms": "Rarely; a suspected node that answers later than this is suspected on.",
}
"""Of the controller."""

CONSOLE: dict[str, str] = {
    "bootstrap": "To the controller's address for clients.",
    "bind": "To let other machines look: a fixed address, with HTTPS or behind a proxy that has it.",
    "https_cert": "As soon as browsers of other machines come without a proxy in between.",
    "https_key": "With `https_cert`.",
    "insecure": "Behind a proxy that serves HTTPS and asks who it is: the console itself asks nobody.",
    "hosts": "Beyond loopback always: the names by which browsers reach it.",
    "allow_changes": "Where whoever reaches the page may create topics.",
    "report": "To the place the analytics report is served from.",
    "tls_cert": "If the cluster speaks TLS: a certificate of a client, or of an admin for `allow_changes`.",
    "tls_key": SHARED["tls_key"],
    "tls_ca": SHARED["tls_ca"],
    "health_bind": SHARED["health_bind"],
    "metrics_bind": SHARED["metrics_bind"],
    "log_format": SHARED["log_format"],
    "log_level": SHARED["log_level"],
    "look_interval_ms": "Larger to ask nodes less often; changes of ISR and leader are told at once all the same.",
    "look_deadline_ms": "Larger on slow links, if nodes are called silent that are not.",
    "max_browsers": "Larger if many people look.",
    "transitions_kept": "Larger to look further back.",
    "partitions_followed": "Larger to see lanes of more partitions from before their page was opened.",
    "shutdown_deadline_ms": "Keep it below the supervisor's own patience.",
}
"""Of the console."""

ADVICE = {"replica": REPLICA, "controller": CONTROLLER, "console": CONSOLE}
"""By the name of the role."""
