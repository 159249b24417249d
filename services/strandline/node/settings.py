"""The settings of a data node, and the frozen values that the packages take from them.

Invariant: a node starts with settings that are right as a whole, or not at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, field_validator, model_validator

from strandline.core.groups.messages import GroupSettings
from strandline.core.log.saving_order import NodeTimings
from strandline.core.messages import Endpoint
from strandline.core.transactions.records import TransactionSettings
from strandline.core.types import Durability, Role, Rules, Truncation
from strandline.export.encoding import ExportFormat
from strandline.rpc.channels import WILDCARDS, parse_endpoint
from strandline.runtime import exporting, settings
from strandline.runtime.log_form import LogFormat, LogFormatSetting, LogLevel, LogLevelSetting

Address = Annotated[str, Field(pattern=r"^\S+:\d{1,5}$")]
Words = Annotated[tuple[str, ...], BeforeValidator(settings.split_commas)]


class ReplicaSettings(settings.ServiceSettings):
    """Settings of a data node (`strandline replica`)."""

    node_id: int = Field(ge=0, description="id of the node, the same after every restart")
    data_dir: Path = Field(description="data directory; one process at a time")
    controllers: Words = Field(description="bootstrap addresses of the controller, host:port with commas", min_length=1)
    bind: Address = Field("127.0.0.1:0", description="address clients are served on; port 0: the kernel chooses")
    internal_bind: Address = Field("127.0.0.1:0", description="address nodes are served on")
    advertise: str = Field("", description="address given to clients, if it is not the bound one; host or host:port")
    internal_advertise: str = Field("", description="address given to nodes, if it is not the bound one")
    roles: Words = Field(("leader", "follower"), description="leader,follower or, for an observer, follower")
    rack: str = Field("", description="rack of the node")
    workers: int = Field(1, ge=1, le=64, description="data nodes that this process starts, each a process of its own")
    tls_cert: settings.TlsCert = ""
    tls_key: settings.TlsKey = ""
    tls_ca: settings.TlsCa = ""
    insecure: settings.Insecure = False
    health_bind: settings.HealthBind = ""
    metrics_bind: settings.MetricsBind = ""
    metrics_tls: settings.MetricsTls = False
    metrics_per_partition: bool = Field(
        False, description="also series for each partition; many partitions, many series"
    )
    log_format: LogFormatSetting = LogFormat.AUTO
    log_level: LogLevelSetting = LogLevel.INFO
    reflection: bool = Field(True, description="serve gRPC reflection")

    truncation: settings.ServedTruncation = Field(
        Truncation.LEADER_EPOCH, description="how a returning follower finds its cut: leader-epoch or fetch"
    )
    durability: Durability = Field(Durability.FSYNC, description="what an acknowledgement means")

    replica_lag_time_max_ms: int = Field(30_000, ge=100, description="lag after which a follower leaves the ISR")
    replica_fetch_wait_max_ms: int = Field(500, ge=1, description="longest wait of a parked replica fetch")
    replica_fetch_max_bytes: int = Field(1 << 20, ge=1024, le=8 << 20, description="bytes per partition and fetch")
    high_watermark_checkpoint_interval_ms: int = Field(5_000, ge=100, description="how often HWs are written")
    retention_check_interval_ms: int = Field(300_000, ge=100, description="how often retention is applied")
    purgatory_max_entries: int = Field(20_000, ge=1, description="produce calls that may wait for their commit")
    purgatory_max_bytes: int = Field(256 << 20, ge=1, description="bytes of batches that may wait")

    group_session_timeout_ms: int = Field(
        45_000, ge=100, description="session time-out of a group member that does not choose one"
    )
    group_min_session_timeout_ms: int = Field(
        6_000, ge=100, description="shortest session time-out that a member may choose"
    )
    group_max_session_timeout_ms: int = Field(
        1_800_000, ge=100, description="longest session time-out that a member may choose"
    )
    group_heartbeat_interval_ms: int = Field(
        5_000, ge=20, description="time between two heartbeats of a member; a third of its session if that is shorter"
    )
    group_max_size: int = Field(10_000, ge=1, description="members of one group")
    offsets_retention_ms: int = Field(
        604_800_000,
        ge=1_000,
        description="age after which a committed offset that no member uses expires",
    )

    transaction_max_timeout_ms: int = Field(
        900_000, ge=1_000, description="longest transaction time-out that a producer may choose"
    )
    transactional_id_expiration_ms: int = Field(
        604_800_000, ge=1_000, description="age after which a transactional id without a transaction is forgotten"
    )

    segment_bytes: int = Field(1 << 30, ge=1, le=(1 << 31) - 1, description="size at which a segment is full")
    low_space_bytes: int = Field(256 << 20, ge=0, description="free space below which produce is refused")
    watch_merge_ms: int = Field(
        20, ge=0, le=1_000, description="window in which changes of metadata become one message to a subscriber"
    )
    tick_ms: int = Field(50, ge=1, le=1_000, description="how often deadlines are checked")
    fsync_threads: int = Field(4, ge=1, le=64, description="logs that may be synced at the same time")
    shutdown_deadline_ms: int = Field(10_000, ge=0, description="longest wait for a controlled shutdown")
    ping_every_ms: int = Field(2_000, ge=100, description="keepalive pings on internal connections")
    ping_timeout_ms: int = Field(2_000, ge=100, description="unanswered ping after which a connection is closed")

    export_dir: exporting.ExportDir = ""
    export_uri: exporting.ExportUri = ""
    export_format: exporting.Format = ExportFormat.PARQUET
    export_roll_s: exporting.RollS = 300
    export_file_bytes: exporting.FileBytes = 64 << 20
    export_waiting_bytes: exporting.WaitingBytes = 64 << 20
    export_ring_events: exporting.RingEvents = 50_000
    sample_interval_ms: exporting.SampleMs = 1_000
    sample_max_interval_ms: exporting.SampleMaxMs = 10_000

    @field_validator("controllers")
    @classmethod
    def _addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            parse_endpoint(text)
            if value.count(text) > 1:
                raise ValueError(f"{text} is named twice; name each controller once")
        return value

    @field_validator("roles")
    @classmethod
    def _known_roles(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if set(value) not in ({"leader", "follower"}, {"follower"}):
            raise ValueError("must be 'leader,follower' or 'follower'")
        return value

    @model_validator(mode="after")
    def _timings_agree(self) -> ReplicaSettings:
        self.timings()
        if not self.group_min_session_timeout_ms <= self.group_session_timeout_ms <= self.group_max_session_timeout_ms:
            raise ValueError("group_session_timeout_ms must be between the shortest and the longest session")
        exporting.check_export(self)
        settings.check_guards(self, bind=self.bind, internal_bind=self.internal_bind)
        for bound, reported in (("bind", "advertise"), ("internal_bind", "internal_advertise")):
            if parse_endpoint(getattr(self, bound)).host in WILDCARDS and not getattr(self, reported):
                raise ValueError(
                    f"{bound} is every address of this machine; set {reported} to the one others should use"
                )
        return self

    def rules(self) -> Rules:
        """The rules that the whole cluster shares."""
        return Rules(truncation=self.truncation, durability=self.durability)

    def timings(self) -> NodeTimings:
        """The durations and bounds of the core."""
        return NodeTimings(
            replica_lag_time_max_ms=self.replica_lag_time_max_ms,
            transaction_max_timeout_ms=self.transaction_max_timeout_ms,
            replica_fetch_wait_max_ms=self.replica_fetch_wait_max_ms,
            replica_fetch_max_bytes=self.replica_fetch_max_bytes,
            high_watermark_checkpoint_interval_ms=self.high_watermark_checkpoint_interval_ms,
            retention_check_interval_ms=self.retention_check_interval_ms,
            purgatory_max_entries=self.purgatory_max_entries,
            purgatory_max_bytes=self.purgatory_max_bytes,
            sample_min_ms=self.sample_interval_ms if exporting.exports(self) else 0,
            sample_max_ms=self.sample_max_interval_ms,
        )

    def groups(self) -> GroupSettings:
        """The bounds of the groups that this node coordinates."""
        return GroupSettings(
            session_timeout_ms=self.group_session_timeout_ms,
            min_session_timeout_ms=self.group_min_session_timeout_ms,
            max_session_timeout_ms=self.group_max_session_timeout_ms,
            heartbeat_interval_ms=self.group_heartbeat_interval_ms,
            max_members=self.group_max_size,
            offsets_retention_ms=self.offsets_retention_ms,
        )

    def transactions(self) -> TransactionSettings:
        """The bounds of the transactions that this node coordinates."""
        return TransactionSettings(
            timeout_ms=min(TransactionSettings().timeout_ms, self.transaction_max_timeout_ms),
            max_timeout_ms=self.transaction_max_timeout_ms,
            id_expiration_ms=self.transactional_id_expiration_ms,
        )

    def role_set(self) -> frozenset[Role]:
        """The roles as the protocol names them."""
        return frozenset(Role(role) for role in self.roles)

    def bootstrap(self) -> tuple[Endpoint, ...]:
        """The controller's addresses."""
        return tuple(parse_endpoint(text) for text in self.controllers)
