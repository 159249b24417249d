"""The advice on when to change each setting from its default.

Invariant: every setting of every service has one sentence here, and every sentence belongs to a setting; a test
compares, so that a new setting brings its advice with it.
"""

from __future__ import annotations

_RULE = "Never after the first start."
_TLS = "As soon as anything beyond this machine can reach the port."

SHARED: dict[str, str] = {
    "tls_cert": _TLS,
    "tls_key": "With `tls_cert`.",
    "tls_ca": "With `tls_cert`.",
    "insecure": "Only on a network that untrusted hosts cannot reach, such as between containers of one test.",
    "health_bind": "Where something probes: Kubernetes, a load balancer, a supervisor.",
    "metrics_bind": "Where Prometheus scrapes.",
    "metrics_tls": "Where others can reach the port; Prometheus then needs a `tls_config`.",
    "log_format": "`json` for JSON even on a terminal; `text` to read a file yourself.",
    "log_level": "`warning` to keep only lines that may need attention.",
    "reflection": "Off, if callers must not be able to list services and messages.",
    "ping_every_ms": "Larger on links billed by the packet; hanging peers are then detected later.",
    "ping_timeout_ms": "Larger if peers that pause that long (frozen virtual machines) should stay connected.",
    "watch_merge_ms": "Larger if bursts of changes to thousands of clients load the process; 0 sends each alone.",
    "export_dir": "To analyse later what happened.",
    "export_uri": "The same, for an object store.",
    "export_format": "`jsonl` where pyarrow is not installed; larger and slower to read.",
    "export_roll_s": "Smaller for fresher data in more and smaller files.",
    "export_file_bytes": "Smaller to save memory, larger for fewer files.",
    "export_waiting_bytes": "Larger to survive a longer outage of the destination.",
    "export_ring_events": "Larger if `strandline_export_dropped_total` grows.",
}
"""What services have in common."""

REPLICA: dict[str, str] = SHARED | {
    "node_id": "Assign each node one id and never change it.",
    "node_id_from_hostname": "In a StatefulSet, whose pods differ only in their names.",
    "data_dir": "A separate volume for each node.",
    "controllers": "The controller's address for nodes.",
    "bind": "A fixed port and an address that clients reach.",
    "internal_bind": "A fixed port and an address that nodes reach, if possible without clients in its network.",
    "advertise": "If clients reach it by another name or port: containers, NAT, `0.0.0.0`.",
    "internal_advertise": "The same, for nodes and the controller.",
    "metrics_per_partition": "If lag must be seen for each of up to a few thousand partitions.",
    "roles": "`follower` for a remote copy that never leads or joins an ISR.",
    "rack": "The zone or the host's rack: replicas of a partition are placed in different ones.",
    "workers": "On a machine with several cores; see Workers.",
    "truncation": _RULE,
    "durability": _RULE,
    "replica_lag_time_max_ms": "Smaller to wait less for a slow follower, with more ISR shrinks.",
    "replica_fetch_wait_max_ms": "Rarely; smaller, and followers of idle partitions learn a new HW sooner.",
    "replica_fetch_max_bytes": "Larger on links with a long round trip.",
    "high_watermark_checkpoint_interval_ms": "Rarely; a smaller value only shortens recovery after a restart.",
    "retention_check_interval_ms": "Smaller if partitions must not exceed `retention.bytes` by much.",
    "purgatory_max_entries": "Larger if producers see THROTTLING_QUOTA_EXCEEDED and memory is free.",
    "purgatory_max_bytes": "The same; this limit bounds memory.",
    "segment_bytes": "Smaller to make retention free space in smaller steps, with more files.",
    "low_space_bytes": "At least what followers may receive in the time you need to react.",
    "tick_ms": "Rarely; it is the granularity of every deadline.",
    "group_session_timeout_ms": "Smaller for a faster take-over of a dead member's partitions.",
    "group_min_session_timeout_ms": "Smaller in tests; many members' heartbeats cost processor time.",
    "group_max_session_timeout_ms": "Larger for members that pause for longer.",
    "group_heartbeat_interval_ms": "Smaller for faster rebalances, at the cost of more requests.",
    "group_max_size": "Smaller to bound what one application can ask of a coordinator.",
    "offsets_retention_ms": "Larger for consumers that run rarely.",
    "transaction_max_timeout_ms": "Smaller if readers of committed records must not wait that long.",
    "transactional_id_expiration_ms": "Larger for producers that pause for more than a week.",
    "fsync_threads": "Larger on disks that sync many files at once, with many partitions.",
    "shutdown_deadline_ms": "Larger with many partitions, below the supervisor's stop time-out.",
    "sample_interval_ms": "Larger for smaller exports with a coarser view of lag and HW.",
    "sample_max_interval_ms": "Larger if most partitions are always idle.",
}
"""Of a data node."""

CONTROLLER: dict[str, str] = SHARED | {
    "data_dir": "A separate volume with backups.",
    "bind": "A fixed port and an address that clients reach.",
    "internal_bind": "To keep nodes' calls on a port that clients do not reach.",
    "truncation": _RULE,
    "durability": _RULE,
    "session_timeout_ms": "Smaller for a faster failover when a machine vanishes, not below the longest pause.",
    "heartbeat_interval_ms": "A quarter of the session time-out or less.",
    "tick_ms": "Smaller with session time-outs below a second.",
    "auto_leader_rebalance_enable": "Off, if leadership should move only on request.",
    "leader_imbalance_check_interval_ms": "Larger if leadership should move back less often.",
    "default_partitions": "What most of your topics use.",
    "default_replication_factor": "What most of your topics use; 3 survives the permanent loss of one machine.",
    "internal_replication_factor": "The number of nodes, in a cluster that has fewer than three.",
    "group_state_partitions": "Rarely; more spread coordination wider, and park more fetches.",
    "transaction_state_partitions": "Rarely; more spread coordination wider, and park more fetches.",
    "unclean_recovery_timeout_ms": "Only where availability matters more than acknowledged records.",
    "watch_backlog": "Larger if watchers are cut off while many topics are created.",
    "store": "`etcd` to run several controllers, of which one decides.",
    "controller_id": "With several controllers on one machine.",
    "advertise": "If clients reach it by another name or port: containers, NAT, `0.0.0.0`.",
    "internal_advertise": "The same, for nodes and other controllers; never the address of a load balancer.",
    "etcd_endpoints": "With `store=etcd`: every member.",
    "etcd_prefix": "One for each cluster, where several share an etcd.",
    "etcd_ca": "As soon as etcd is on another machine.",
    "etcd_cert": "Where etcd runs with `--client-cert-auth`.",
    "etcd_key": "With `etcd_cert`.",
    "etcd_user": "Where etcd asks for a password.",
    "etcd_password_file": "With `etcd_user`.",
    "reign_lease_s": "Larger on machines that pause for seconds; a vanished one is then replaced later.",
    "etcd_quota_bytes": "etcd's `--quota-backend-bytes`, if etcd is older than 3.6; for metrics alone.",
    "log_snapshot_every": "Rarely; larger if snapshots of a very large cluster are too frequent.",
    "part_bytes": "Never in service; smaller in tests.",
    "probe_deadline_ms": "Rarely; a node that answers later than this stays suspected.",
}
"""Of the controller."""

CONSOLE: dict[str, str] = {
    "bootstrap": "The controller's address for clients.",
    "bind": "For browsers on other machines: a fixed address, with HTTPS.",
    "https_cert": "As soon as browsers on other machines connect without a proxy.",
    "https_key": "With `https_cert`.",
    "insecure": "Behind a proxy that serves HTTPS and authenticates users.",
    "hosts": "Always beyond loopback.",
    "allow_changes": "Where everyone who can reach the page may create topics.",
    "report": "The address that serves the analytics report.",
    "tls_cert": "If the cluster speaks TLS: a certificate of a client, or of an admin for `allow_changes`.",
    "tls_key": SHARED["tls_key"],
    "tls_ca": SHARED["tls_ca"],
    "health_bind": SHARED["health_bind"],
    "metrics_bind": SHARED["metrics_bind"],
    "metrics_tls": SHARED["metrics_tls"],
    "log_format": SHARED["log_format"],
    "log_level": SHARED["log_level"],
    "metadata_stale_ms": "Larger if the console should keep its node through longer outages of controllers.",
    "look_interval_ms": "Larger to poll less; changes of ISR and leader still appear at once.",
    "look_deadline_ms": "Larger on slow links, if live nodes are shown as silent.",
    "max_browsers": "Larger for more viewers.",
    "transitions_kept": "Larger to keep a longer history.",
    "partitions_followed": "Larger to keep the history of more partitions.",
    "shutdown_deadline_ms": "Keep it below the supervisor's stop time-out.",
}
"""Of the console."""

ADVICE = {"replica": REPLICA, "controller": CONTROLLER, "console": CONSOLE}
"""By the name of the role."""
