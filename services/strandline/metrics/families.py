"""What is measured and under which names: every metric of every process, once, with its words.

Names follow what Kafka's users know, in Prometheus form; `docs/METRICS.md` is this table as a page.

Invariant: a name that a release has had keeps its meaning, its unit and its labels. No label takes a value that a
caller can invent: topics and partitions appear only in the families marked ``per_partition``, which a setting opens.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

PREFIX = "strandline_"


class MetricType(StrEnum):
    """What Prometheus calls the type."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Role(StrEnum):
    """Who serves a metric."""

    REPLICA = "replica"
    CONTROLLER = "controller"
    ANALYTICS = "analytics"
    CONSOLE = "console"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric. ``kafka``: the nearest thing that Kafka's users know, or empty."""

    name: str
    """Without `PREFIX`; a counter's ends in ``_total``."""
    kind: MetricType
    help: str
    roles: tuple[Role, ...]
    labels: tuple[str, ...] = ()
    unit: str = ""
    kafka: str = ""
    per_partition: bool = False

    @property
    def full_name(self) -> str:
        """As it is scraped."""
        return PREFIX + self.name


_PARTITION = ("topic", "partition")
_NODE, _CONTROL = (Role.REPLICA,), (Role.CONTROLLER,)
_BOTH = (Role.REPLICA, Role.CONTROLLER)
_MANAGER = "kafka.server:type=ReplicaManager,name="
_CONTROLLER_MBEAN = "kafka.controller:type=KafkaController,name="
_STATS = "kafka.controller:type=ControllerStats,name="
_TOPICS = "kafka.server:type=BrokerTopicMetrics,name="
_LOG = "kafka.log:type=Log,name="


def _gauge(name: str, text: str, roles: tuple[Role, ...] = _NODE, **more: str | tuple[str, ...] | bool) -> Family:
    return Family(name=name, kind=MetricType.GAUGE, help=text, roles=roles, **more)  # type: ignore[arg-type]


def _counter(name: str, text: str, roles: tuple[Role, ...] = _NODE, **more: str | tuple[str, ...] | bool) -> Family:
    return Family(name=name, kind=MetricType.COUNTER, help=text, roles=roles, **more)  # type: ignore[arg-type]


def _seconds(name: str, text: str, roles: tuple[Role, ...] = _NODE, **more: str | tuple[str, ...] | bool) -> Family:
    return Family(name=name, kind=MetricType.HISTOGRAM, help=text, roles=roles, unit="s", **more)  # type: ignore[arg-type]


PARTITIONS = _gauge("partitions", "Logs on this node, whatever its role.", kafka=_MANAGER + "PartitionCount")
LED = _gauge("leader_partitions", "Partitions that this node leads.", kafka=_MANAGER + "LeaderCount")
UNDER_REPLICATED = _gauge(
    "under_replicated_partitions",
    "Led partitions with an ISR smaller than the assigned replicas; not for what a move adds.",
    kafka=_MANAGER + "UnderReplicatedPartitions",
)
UNDER_MIN_ISR = _gauge(
    "under_min_isr_partitions",
    "Led partitions with an ISR below min.insync.replicas: acks=all is refused.",
    kafka=_MANAGER + "UnderMinIsrPartitionCount",
)
AT_MIN_ISR = _gauge(
    "at_min_isr_partitions",
    "Led partitions with an ISR of exactly min.insync.replicas: one more failure stops acks=all.",
    kafka=_MANAGER + "AtMinIsrPartitionCount",
)
REASSIGNMENT_STALLED = _gauge(
    "reassignment_stalled_seconds",
    "How long the reassignment of a led partition has copied nothing and joined no replica, where that is longest, "
    "sampled every 250 ms; a new leader begins at 0; 0 without one.",
    unit="s",
)
FAILED_PARTITIONS = _gauge(
    "failed_partitions",
    "Followed partitions that stopped replicating until the next leader epoch.",
    kafka="kafka.server:type=ReplicaFetcherManager,name=FailedPartitionsCount",
)
REFUSED_CUTS = _gauge("refused_cuts", "Failed partitions whose leader lacks committed records that this node holds.")
READY = _gauge(
    "ready", "1 if the node is registered, unfenced and in sync wherever it is assigned and not being added, else 0."
)
NODE_EPOCH = _gauge("node_epoch", "Epoch of this process's registration.", kafka="BrokerEpoch in the metadata log")

ISR_SHRINKS = _counter(
    "isr_shrinks_total",
    "Shrinks of the ISR of led partitions, by cause.",
    labels=("cause",),
    kafka=_MANAGER + "IsrShrinksPerSec",
)
ISR_EXPANDS = _counter(
    "isr_expands_total", "Expands of the ISR of led partitions.", kafka=_MANAGER + "IsrExpandsPerSec"
)
FAILED_ISR_UPDATES = _counter(
    "failed_isr_updates_total",
    "Proposals for an ISR that the controller refused or never answered.",
    kafka=_MANAGER + "FailedIsrUpdatesPerSec",
)
REPLICA_LAG_RECORDS = _gauge(
    "replica_lag_records",
    "Records that a follower lacks, in the led partition where it lacks most.",
    labels=("follower",),
    unit="records",
    kafka="kafka.server:type=ReplicaFetcherManager,name=MaxLag",
)
REPLICA_LAG_SECONDS = _gauge(
    "replica_lag_seconds",
    "Time since a follower was last at the log end, in the led partition where that is longest.",
    labels=("follower",),
    unit="s",
    kafka="what replica.lag.time.max.ms is compared with",
)

HW_LAG_RECORDS = _gauge(
    "hw_lag_records",
    "Records above the HW, in the led partition with most of them.",
    unit="records",
)
HW_LAG_SECONDS = _gauge(
    "hw_lag_seconds",
    "Age of the oldest record above the HW of any led partition, sampled every 250 ms; 0 without one.",
    unit="s",
)
LSO_LAG_RECORDS = _gauge(
    "lso_lag_records",
    "Records between LSO and HW, which readers of committed records are not given yet, in the led partition with most.",
    unit="records",
)
LSO_HELD_SECONDS = _gauge(
    "lso_held_seconds",
    "How long one transaction has held the LSO of a led partition below its HW, where that is longest, sampled every "
    "250 ms; a new leader begins at 0; 0 without one.",
    unit="s",
    kafka="kafka.server:type=ReplicaManager,name=PartitionsWithLateTransactionsCount",
)
TRANSACTIONS = _counter(
    "transactions_total",
    "Transactions decided in led partitions by a committed marker, by outcome: commit or abort; one of several "
    "partitions counts in each, late by ten seconds.",
    labels=("outcome",),
    unit="transactions",
)
TRUNCATIONS = _counter("truncations_total", "Truncations of a followed log.")
TRUNCATED_RECORDS = _counter("truncated_records_total", "Records truncated from followed logs.", unit="records")
COMMITTED_CUT = _counter(
    "truncated_committed_records_total",
    "Truncated records below the replica's own HW, lost to an unclean election or page-cache durability.",
    unit="records",
)
CUTS_AT_UNKNOWN_HW = _counter(
    "truncations_own_hw_unknown_total",
    "Truncations by a replica that had not known its HW since it started: their loss is known to other replicas only.",
)

PURGATORY_SIZE = _gauge(
    "purgatory_size",
    "Calls that wait: produce for its commit, fetch for records.",
    labels=("kind",),
    kafka="kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize,delayedOperation=Produce (or Fetch)",
)
PURGATORY_EXPIRES = _counter(
    "purgatory_expires_total",
    "Waiting calls that timed out.",
    labels=("kind",),
    kafka="kafka.server:type=DelayedOperationPurgatory: DelayedProduceMetrics, DelayedFetchMetrics ExpiresPerSec",
)
PRODUCE_LATENCY = _seconds(
    "produce_latency_seconds",
    "From a decoded produce to its response.",
    kafka="kafka.network:type=RequestMetrics,name=TotalTimeMs,request=Produce",
)
FETCH_LATENCY = _seconds(
    "fetch_latency_seconds",
    "From a decoded fetch to its first response, including the wait for records.",
    labels=("by",),
    kafka="kafka.network:type=RequestMetrics,name=TotalTimeMs,request=FetchFollower (or FetchConsumer)",
)
FSYNC = _seconds(
    "fsync_seconds",
    "From the request of a group commit of a log until it was durable.",
    kafka="kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs",
)
RECORDS_IN = _counter("records_in_total", "Records appended as leader.", kafka=_TOPICS + "MessagesInPerSec")
BYTES_IN = _counter("bytes_in_total", "Bytes appended as leader.", unit="bytes", kafka=_TOPICS + "BytesInPerSec")
REPLICATED_BYTES_IN = _counter(
    "replicated_bytes_in_total",
    "Bytes appended as follower.",
    unit="bytes",
    kafka=_TOPICS + "ReplicationBytesInPerSec",
)
BYTES_OUT = _counter(
    "bytes_out_total",
    "Bytes of records sent, to replicas and to consumers.",
    labels=("to",),
    unit="bytes",
    kafka=_TOPICS + "BytesOutPerSec, ReplicationBytesOutPerSec",
)
REFUSALS = _counter(
    "refusals_total",
    "Refusals of one partition of a call or of a whole call, by error name.",
    _BOTH,
    labels=("error",),
    kafka="kafka.network:type=RequestMetrics,name=ErrorsPerSec",
)
QUOTA_THROTTLED = _counter(
    "quota_throttled_total",
    "Requests of clients after which their principal was asked to wait, by the quota that was exceeded.",
    labels=("quota",),
)
QUOTA_THROTTLE = _counter(
    "quota_throttle_seconds_total",
    "Time that principals were asked to wait, by the quota that was exceeded.",
    labels=("quota",),
    unit="s",
    kafka="kafka.server:type=Produce (or Fetch),user=...: throttle-time, as an average of each user",
)
LOG_BYTES = _gauge("log_bytes", "Size of all logs of this node.", unit="bytes", kafka=_LOG + "Size")
RETENTION_WAITS = _gauge(
    "retention_waiting_logs",
    "Logs of this node whose oldest segment has a time in the future, for which retention by time waits.",
)
DISK_FREE = _gauge("disk_free_bytes", "Free space on the volume of the data directory.", _BOTH, unit="bytes")

GROUPS = _gauge(
    "groups",
    "Groups that this node coordinates, by state.",
    labels=("state",),
    kafka="kafka.server:type=group-coordinator-metrics,name=consumer-group-count",
)
GROUP_MEMBERS = _gauge("group_members", "Members of the groups that this node coordinates.")
GROUP_REBALANCES = _counter(
    "group_rebalances_total",
    "Rebalances of groups coordinated here, by what began them: a member came or went, or a subscription or topic "
    "changed.",
    labels=("cause",),
    kafka="kafka.server:type=group-coordinator-metrics,name=consumer-group-rebalance-count",
)
GROUP_REBALANCE = _seconds(
    "group_rebalance_seconds",
    "From a rise of a group's epoch until its members have what they are to have; a new coordinator counts from its "
    "load.",
)
OLDEST_REBALANCE = _gauge(
    "group_oldest_rebalance_seconds",
    "Age of the oldest rebalance that has not ended on this node; a new coordinator starts from 0; 0 without one.",
    unit="s",
)
OFFSET_COMMITS = _counter(
    "offset_commits_total",
    "Offsets that groups were to commit at this node, by partition: committed, or the name of the error.",
    labels=("result",),
    kafka="kafka.server:type=group-coordinator-metrics,name=offset-commit-count",
)
TRANSACTIONAL_IDS = _gauge(
    "transactional_ids",
    "Transactional ids that this node coordinates, by the state of their transaction: empty, ongoing, prepare_commit, "
    "prepare_abort (markers are on their way), complete_commit, complete_abort.",
    labels=("state",),
)
COORDINATOR_LOAD = _seconds(
    "coordinator_load_seconds",
    "From the leadership of a partition of groups until requests are served.",
    kafka="kafka.server:type=group-coordinator-metrics,name=partition-load-time-max",
)
COORDINATOR_SHARDS = _gauge(
    "coordinator_shards",
    "Led partitions of groups by state: loading, unsettled (read, and not known to be committed), active, unreadable.",
    labels=("state",),
    kafka="kafka.server:type=group-coordinator-metrics,name=num-partitions",
)

LOG_END_OFFSET = _gauge(
    "log_end_offset",
    "LEO of the log on this node, exclusive.",
    labels=_PARTITION,
    unit="offset",
    kafka=_LOG + "LogEndOffset",
    per_partition=True,
)
LAST_STABLE_OFFSET = _gauge(
    "last_stable_offset",
    "LSO of a led partition, exclusive: below it every transaction is decided.",
    labels=_PARTITION,
    unit="offset",
    kafka=_LOG + "LastStableOffset",
    per_partition=True,
)
HIGH_WATERMARK = _gauge(
    "high_watermark",
    "HW as this node knows it, exclusive.",
    labels=_PARTITION,
    unit="offset",
    per_partition=True,
)
LOG_START_OFFSET = _gauge(
    "log_start_offset",
    "First offset that the log still has.",
    labels=_PARTITION,
    unit="offset",
    kafka=_LOG + "LogStartOffset",
    per_partition=True,
)
PARTITION_HW_LAG = _gauge(
    "partition_hw_lag_records",
    "Records above the HW of a led partition.",
    labels=_PARTITION,
    unit="records",
    per_partition=True,
)
PARTITION_REPLICA_LAG = _gauge(
    "partition_replica_lag_records",
    "Records that a follower lacks in a led partition.",
    labels=(*_PARTITION, "follower"),
    unit="records",
    kafka="kafka.server:type=FetcherLagMetrics,name=ConsumerLag",
    per_partition=True,
)
PARTITION_ISR = _gauge(
    "partition_isr_size",
    "Members in the ISR of a led partition.",
    labels=_PARTITION,
    kafka="kafka.cluster:type=Partition,name=InSyncReplicasCount",
    per_partition=True,
)

METADATA_OFFSET = _gauge(
    "metadata_offset",
    "Newest metadata that this process has applied.",
    _BOTH,
    kafka="kafka.server:type=broker-metadata-metrics,name=last-applied-record-offset",
)
METADATA_AGE = _gauge("metadata_age_seconds", "Since this node last heard anything on its watch of the controller.")
SUBSCRIBERS = _gauge("metadata_subscribers", "Clients that are subscribed to metadata at this node now.")
CONTROLLER_EPOCH = _gauge("controller_epoch", "Controller epoch, as this process knows it.", _BOTH)
OFFLINE = _gauge(
    "offline_partitions",
    "Partitions without a leader: nothing can be written or read there.",
    _CONTROL,
    kafka=_CONTROLLER_MBEAN + "OfflinePartitionsCount",
)
AWAITING_LOGS = _gauge(
    "partitions_awaiting_logs",
    "Partitions without a leader where a live member of ISR or ELR waits for the others' logs.",
    _CONTROL,
)
FENCED_NODES = _gauge(
    "fenced_nodes",
    "1 for each registered node whose session ended, 0 for the others; the sum is the number of fenced nodes.",
    _CONTROL,
    labels=("node",),
    kafka=_CONTROLLER_MBEAN + "FencedBrokerCount",
)
ACTIVE_NODES = _gauge(
    "active_nodes", "Registered nodes that are not fenced.", _CONTROL, kafka=_CONTROLLER_MBEAN + "ActiveBrokerCount"
)
CLUSTER_TOPICS = _gauge("cluster_topics", "Topics.", _CONTROL, kafka=_CONTROLLER_MBEAN + "GlobalTopicCount")
CLUSTER_PARTITIONS = _gauge(
    "cluster_partitions", "Partitions of all topics.", _CONTROL, kafka=_CONTROLLER_MBEAN + "GlobalPartitionCount"
)
CLUSTER_UNDER_REPLICATED = _gauge(
    "cluster_under_replicated_partitions",
    "Partitions with an ISR smaller than the assigned replicas, including offline ones; not for what a move adds.",
    _CONTROL,
)
UNREPAIRED = _gauge(
    "unrepaired_partitions", "Under-replicated partitions that no reassignment moves or waits to move.", _CONTROL
)
REASSIGNING = _gauge(
    "reassigning_partitions",
    "Partitions with a reassignment that has not ended, by whether it runs or is queued.",
    _CONTROL,
    labels=("state",),
    kafka=_MANAGER + "ReassigningPartitions",
)
CLUSTER_UNDER_MIN_ISR = _gauge(
    "cluster_under_min_isr_partitions", "Partitions with fewer members in the ISR than min.insync.replicas.", _CONTROL
)
IMBALANCED = _gauge(
    "preferred_replica_imbalance",
    "Partitions that have a leader other than their preferred one.",
    _CONTROL,
    kafka=_CONTROLLER_MBEAN + "PreferredReplicaImbalanceCount",
)
LEADER_ELECTIONS = _counter(
    "leader_elections_total",
    "New leader epochs with a leader, by reason.",
    _CONTROL,
    labels=("reason",),
)
UNCLEAN_ELECTIONS = _counter(
    "unclean_elections_total",
    "Elections of a replica that was not in sync: committed records may be lost.",
    _CONTROL,
    kafka=_STATS + "UncleanLeaderElectionsPerSec",
)
UNPROVEN_CLAIMS = _counter(
    "unproven_claims_total",
    "Registrations and heartbeats refused because they claim, without proof, more than the store holds.",
    _CONTROL,
)
SESSIONS_ENDED = _counter(
    "node_sessions_ended_total",
    "Sessions of nodes that ended, by cause.",
    _CONTROL,
    labels=("cause",),
    kafka=_CONTROLLER_MBEAN + "TimedOutBrokerHeartbeatCount",
)
CONTROLLER_SHRINKS = _counter(
    "controller_isr_shrinks_total",
    "Shrinks that the controller committed, by cause, including those that no leader saw.",
    _CONTROL,
    labels=("cause",),
)
CONTROLLER_EXPANDS = _counter("controller_isr_expands_total", "Expands that the controller committed.", _CONTROL)
METADATA_COMMIT = _seconds(
    "metadata_commit_seconds",
    "Time of one commit of the controller's store.",
    _CONTROL,
    kafka="kafka.server:type=raft-metrics,name=commit-latency-avg",
)
WATCHERS = _gauge("metadata_watchers", "Nodes and clients that watch metadata now.", _CONTROL)
CONTROLLER_ACTIVE = _gauge("controller_active", "1 on the controller that decides, 0 on a standby.", _CONTROL)
CONTROLLER_LAG = _gauge(
    "controller_lag_transactions", "Transactions of the store that this controller has not applied yet.", _CONTROL
)
REIGNS_BEGUN = _counter("controller_reigns_total", "How often this process began to decide.", _CONTROL)
STORE_UP = _gauge("store_up", "1 while a majority of the store's members answers this controller, else 0.", _CONTROL)
STORE_DB_BYTES = _gauge("store_db_bytes", "Size of the file of etcd's largest member.", _CONTROL, unit="bytes")
STORE_QUOTA_RATIO = _gauge(
    "store_quota_ratio", "That size as a part of etcd's quota, at which etcd refuses every write.", _CONTROL
)

QUESTIONS_WAITING = _gauge(
    "analytics_questions_waiting", "Queries that wait for the one being computed.", (Role.ANALYTICS,)
)
QUESTIONS = _counter(
    "analytics_questions_total", "Queries that ended, by outcome.", (Role.ANALYTICS,), labels=("outcome",)
)

EXPORT = (
    _counter("export_events_total", "State events that the export accepted.", _BOTH),
    _counter("export_dropped_total", "State events dropped because the writer was too far behind.", _BOTH),
    _counter("export_lost_total", "State events discarded because a destination did not accept them in time.", _BOTH),
    _counter("export_rows_total", "State events in files that reached their destination.", _BOTH),
    _counter("export_files_total", "Files that reached their destination.", _BOTH),
    _counter("export_bytes_total", "Size of files that reached their destination.", _BOTH, unit="bytes"),
    _counter("export_failures_total", "Failed attempts to write to a destination.", _BOTH),
    _gauge("export_waiting_events", "State events that wait for the writer.", _BOTH),
    _gauge("export_waiting_files", "Files that wait for their destination.", _BOTH),
    _gauge("export_waiting_bytes", "Size of files that wait for their destination.", _BOTH, unit="bytes"),
    _gauge("export_lag_seconds", "Age of the oldest state event that is in no file yet.", _BOTH, unit="s"),
    _counter("export_writer_cpu_seconds_total", "CPU time of the export thread.", _BOTH, unit="s"),
)
"""What `strandline.export.counters` counts, under its own names."""

BUILD = _gauge("build_info", "1, with the version of this process.", tuple(Role), labels=("version", "role"))

FAMILIES: tuple[Family, ...] = (
    *(value for value in list(vars().values()) if isinstance(value, Family)),
    *EXPORT,
)
"""Every metric, in the order of this file."""
