"""The embedded store: everything committed is there again, whole, and for one process only."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from strandline.core.control.state import (
    ClusterHeader,
    ClusterState,
    NodeRecord,
    RemovedNode,
    TopicRecord,
    Transaction,
    record_of,
)
from strandline.core.messages import Endpoint, NodeImage, PartitionImage
from strandline.core.permissions import Operation, Pattern, Permission, ResourceType, Rule
from strandline.core.quotas import Quota, QuotaKey
from strandline.core.types import (
    Durability,
    FetchHw,
    IsrJoin,
    LeaderEpoch,
    NodeEpoch,
    NodeId,
    PartitionEpoch,
    Role,
    Rules,
    TopicPartition,
    Truncation,
)
from strandline.metadata import documents, sqlite
from strandline.metadata.documents import state_of
from strandline.metadata.sqlite import FILE_NAME, SCHEMA_VERSION, SqliteStore
from strandline.metadata.store import Mark, Marked, StoreFailed, StoreMarked, mark_value

TOPIC = "aaaaaaaa-0000-4000-8000-000000000001"
OTHER = "00000000-0000-4000-8000-000000000002"


def header(offset: int = 1, epoch: int = 1) -> ClusterHeader:
    """A header at an offset."""
    return ClusterHeader(cluster_id="c", controller_epoch=epoch, metadata_offset=offset)


def node(node_id: int = 1, epoch: int = 1) -> NodeRecord:
    """A node with every field set."""
    image = NodeImage(
        node_id=NodeId(node_id),
        node_epoch=NodeEpoch(epoch),
        client_endpoint=Endpoint("::1", 9092),
        internal_endpoint=Endpoint("h", 9093),
        rack="r1",
        fenced=False,
    )
    return NodeRecord(image=image, incarnation_id="i", directory_id="d", past_incarnations=("h", "g"))


def partition(index: int = 0, topic_id: str = TOPIC, epoch: int = 0) -> PartitionImage:
    """A partition without a leader, so that absence is tested, too."""
    return PartitionImage(
        tp=TopicPartition(topic_id, index),
        replicas=(NodeId(1), NodeId(0)),
        isr=(),
        elr=(NodeId(0),),
        leader=None,
        leader_epoch=LeaderEpoch(3),
        partition_epoch=PartitionEpoch(epoch),
        min_isr=1,
        recovering=True,
        last_unclean_leader_epoch=LeaderEpoch(0),
        observers=(NodeId(9),),
    )


def topic(topic_id: str = TOPIC, name: str = "t") -> TopicRecord:
    """A topic with settings."""
    return TopicRecord(name=name, topic_id=topic_id, configs=(("min.insync.replicas", "1"), ("retention.ms", "-1")))


def full(offset: int = 1) -> Transaction:
    """A transaction with one of everything."""
    return Transaction(header=header(offset), nodes=(node(),), topics=(topic(),), partitions=(partition(),))


async def reopened(directory: Path) -> ClusterState | None:
    """The state that a new process finds."""
    store = SqliteStore(directory)
    try:
        return await store.open()
    finally:
        await store.close()


async def stored(directory: Path) -> None:
    """A controller leaves a store with one transaction."""
    store = SqliteStore(directory)
    await store.open()
    await store.commit([full(1)])
    await store.close()


async def refused(directory: Path, match: str) -> None:
    """Expect that a new process does not open the store."""
    with pytest.raises(StoreFailed, match=match):
        await reopened(directory)


async def test_new_store_is_empty(tmp_path: Path) -> None:
    """A store without commits returns None, in a directory that did not exist."""
    assert await reopened(tmp_path / "new") is None


async def test_committed_state_is_found_again(tmp_path: Path) -> None:
    """Transactions read back as the state they make in memory, in order of creation."""
    store = SqliteStore(tmp_path)
    await store.open()
    second = Transaction(
        header=header(2), topics=(topic(OTHER, "b"),), partitions=(partition(0, OTHER), partition(1, OTHER))
    )
    expected = ClusterState(header=header()).apply(full()).apply(second)

    await store.commit([full(), second])
    await store.close()

    found = await reopened(tmp_path)
    assert found == expected
    assert found is not None
    assert list(found.topics) == [TOPIC, OTHER]


async def test_later_transactions_replace_and_delete(tmp_path: Path) -> None:
    """A node, topic or partition is replaced whole; a deleted topic leaves only its id behind."""
    store = SqliteStore(tmp_path)
    await store.open()
    changes = [
        full(1),
        Transaction(header=header(2), nodes=(node(epoch=2),), partitions=(partition(epoch=1),)),
        Transaction(header=header(3), topics=(topic(OTHER, "b"),), partitions=(partition(0, OTHER),)),
        Transaction(header=header(4), deleted_topic_ids=(TOPIC,)),
    ]
    expected = ClusterState(header=header())
    for change in changes:
        expected = expected.apply(change)
        await store.commit([change])
    await store.close()

    found = await reopened(tmp_path)

    assert found == expected
    assert found is not None
    assert (set(found.topics), found.deleted_topic_ids) == ({OTHER}, {TOPIC})


async def test_removed_nodes_are_kept(tmp_path: Path) -> None:
    """A removed node is read as its tombstone alone, and beside its record once the id has registered again."""
    store = SqliteStore(tmp_path)
    await store.open()
    removed = RemovedNode(node_id=NodeId(1), node_epoch=NodeEpoch(1), directory_id="d")
    gone = ClusterState(header=header()).apply(full(1)).apply(Transaction(header=header(2), removed_nodes=(removed,)))
    back = gone.apply(Transaction(header=header(3), nodes=(node(epoch=5),)))
    await store.commit([full(1), Transaction(header=header(2), removed_nodes=(removed,))])
    await store.close()
    found = await reopened(tmp_path)
    again = SqliteStore(tmp_path)
    await again.open()
    await again.replace(back)
    await again.close()

    assert found == gone
    assert found is not None
    assert found.nodes == {}
    assert await reopened(tmp_path) == back


async def test_a_store_from_before_removals_is_read(tmp_path: Path) -> None:
    """A store that the first release created, without a table of removed nodes, is opened and written to."""
    await stored(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as raw:
        raw.execute("DROP TABLE removed_nodes")
    found = await reopened(tmp_path)

    assert found == ClusterState(header=header()).apply(full(1))


async def test_commits_together_are_whole_or_nothing(tmp_path: Path) -> None:
    """When one transaction of a group fails, none of the group is stored, and the failure says so."""
    store = SqliteStore(tmp_path)
    await store.open()
    await store.commit([full(1)])
    broken = Transaction(header=header(3), nodes=(node(node_id=2**70),))

    with pytest.raises(StoreFailed):
        await store.commit([Transaction(header=header(2)), broken])
    await store.close()

    found = await reopened(tmp_path)
    assert found is not None
    assert found.header.metadata_offset == 1


async def test_second_process_is_refused(tmp_path: Path) -> None:
    """A store that is open is in use: a second controller on it would assign the same epochs. One that cannot be
    opened for another reason is not."""
    store = SqliteStore(tmp_path)
    await store.open()
    second = SqliteStore(tmp_path)

    with pytest.raises(StoreFailed, match="in use by another process"):
        await second.open()

    await second.close()
    await store.close()
    (tmp_path / f"{FILE_NAME}-wal").mkdir()
    await refused(tmp_path, f"{FILE_NAME}: unable to open")


async def test_commits_are_synchronous(tmp_path: Path) -> None:
    """The file is in WAL mode with synchronous FULL: COMMIT returns after the fsync."""
    store = SqliteStore(tmp_path)
    await store.open()

    found = await store._run(
        lambda: [store._db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    )

    assert found == ["wal", 2]
    await store.close()


async def test_replace_leaves_nothing_of_the_old_content(tmp_path: Path) -> None:
    """Recovery replaces the whole state by the given one (TR18)."""
    store = SqliteStore(tmp_path)
    await store.open()
    await store.commit([full(1)])
    wanted = ClusterState(header=header(9, 7)).apply(
        Transaction(header=header(9, 7), topics=(topic(OTHER, "b"),), partitions=(partition(0, OTHER),))
    )

    await store.replace(wanted)
    await store.close()

    assert await reopened(tmp_path) == wanted


async def test_a_copy_is_durable_before_it_takes_the_place_of_an_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss of power leaves the older copy or the whole new one."""
    store, copy = SqliteStore(tmp_path / "store"), tmp_path / "copy"
    await store.open()
    await store.commit([full(1)])
    copy.write_bytes(b"older")
    synced: list[tuple[str, bool]] = []
    monkeypatch.setattr(sqlite, "sync", lambda path: synced.append((path.name, copy.read_bytes() == b"older")))
    await store.copy_to(copy)
    await store.close()
    copy.rename(tmp_path / FILE_NAME)

    assert synced == [("copy.new", True), (tmp_path.name, False)]
    assert await reopened(tmp_path) == ClusterState(header=header()).apply(full(1))


DAMAGES = [
    "no json",
    '{"cluster_id": "c"}',
    *map(documents.sealed, ["no json", "{}", '{"cluster_id": "c"}', "[]", "[" * 100_000, '{"rules": {}}']),
    documents.sealed(documents.write(header())[9:].replace('"controller_epoch":1', '"controller_epoch":Infinity')),
    documents.write(header()).replace('"controller_epoch":1', '"controller_epoch":0'),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=range(len(DAMAGES)))
async def test_damaged_document_is_refused(tmp_path: Path, damage: str) -> None:
    """A document that cannot be read stops the start with one line, and is never guessed."""
    await stored(tmp_path)
    with sqlite3.connect(tmp_path / FILE_NAME) as raw:
        raw.execute("UPDATE header SET document = ?", (damage,))
    raw.close()

    await refused(tmp_path, "cannot read ClusterHeader")


async def test_a_changed_digit_is_damage(tmp_path: Path) -> None:
    """A leader epoch that changed on the disk is rejected: SQLite itself would return it (A6)."""
    await stored(tmp_path)
    path = tmp_path / FILE_NAME
    changed = path.read_bytes().replace(b'"leader_epoch":3', b'"leader_epoch":2')
    path.write_bytes(changed)

    await refused(tmp_path, "checksum")


@pytest.mark.parametrize("emptied", [True, False])
async def test_a_log_without_its_store_is_refused(tmp_path: Path, emptied: bool) -> None:
    """A store that lost its main file, but not its write-ahead log, is not a new store."""
    store = SqliteStore(tmp_path / "live")
    await store.open()
    await store.commit([full(1)])
    (tmp_path / f"{FILE_NAME}-wal").write_bytes((tmp_path / "live" / f"{FILE_NAME}-wal").read_bytes())
    await store.close()
    if emptied:
        (tmp_path / FILE_NAME).touch()

    await refused(tmp_path, "is empty")


async def test_file_that_is_no_store_is_refused(tmp_path: Path) -> None:
    """Other bytes under the store's name are not overwritten."""
    (tmp_path / FILE_NAME).write_bytes(b"not a database" * 100)

    await refused(tmp_path, "not a database")
    assert (tmp_path / FILE_NAME).read_bytes().startswith(b"not a database")


async def test_store_of_a_later_release_is_refused(tmp_path: Path) -> None:
    """A schema version this release does not know is named, not migrated."""
    with sqlite3.connect(tmp_path / FILE_NAME) as raw:
        raw.execute("PRAGMA user_version = 99")
    raw.close()

    await refused(tmp_path, "schema 99")


async def test_an_earlier_release_refuses_a_store_that_was_moved(tmp_path: Path) -> None:
    """The mark changes the schema version, the one thing that every release looks at; without it all is as it was."""
    store = SqliteStore(tmp_path)
    await store.open()
    await store.commit([full()])
    await store.set_mark(Mark(Marked.MOVED, "m", "etcd:e:1/x"))
    await store.close()
    with sqlite3.connect(tmp_path / FILE_NAME) as raw:
        (marked,) = raw.execute("PRAGMA user_version").fetchone()
    raw.close()
    with pytest.raises(StoreMarked, match="was moved to etcd:e:1/x"):
        await store.open()
    await store.open_marked()
    await store.set_mark(None)
    await store.close()

    assert marked not in range(SCHEMA_VERSION + 100)
    assert await reopened(tmp_path) == state_of(full())


FIRST_SCHEMA = {
    "header": '31add21d {"cluster_id":"c","controller_epoch":1,"feature_level":1,"metadata_offset":1,'
    '"next_node_epoch":1,"next_producer_id":0,"rules":{"durability":"fsync","fetch_hw":"snapshot","isr_join":"caught-up",'
    '"truncation":"leader-epoch"},"secret":""}',
    "nodes": 'ea8c99a5 {"client_endpoint":["::1",9092],"directory_id":"d","feature_max":1,"feature_min":1,'
    '"fenced":false,"incarnation_id":"i","internal_endpoint":["h",9093],"node_epoch":1,"node_id":1,"past_incarnations":["h","g"],'
    '"rack":"r1","roles":["follower","leader"],"shutting_down":false}',
    "topics": '6d82260e {"configs":{"min.insync.replicas":"1","retention.ms":"-1"},"name":"t",'
    '"topic_id":"aaaaaaaa-0000-4000-8000-000000000001"}',
    "partitions": 'f1270df0 {"elr":[0],"isr":[],"last_unclean_leader_epoch":0,"leader":null,"leader_epoch":3,'
    '"min_isr":1,"observers":[9],"partition":0,"partition_epoch":0,"recovering":true,"replicas":[1,0],'
    '"topic_id":"aaaaaaaa-0000-4000-8000-000000000001","unproven":[]}',
}
"""What the first schema kept of `full`, byte by byte."""


async def of_the_first_schema(directory: Path, **changed: str) -> None:
    """Leave a store of the first schema in a directory."""
    await stored(directory)
    with closing(sqlite3.connect(directory / FILE_NAME)) as raw:
        for table, document in (FIRST_SCHEMA | changed).items():
            raw.execute(f"UPDATE {table} SET document = ?", (document,))
        raw.execute("PRAGMA user_version = 1")
        raw.commit()


async def test_a_store_of_the_first_schema_becomes_one_of_this(tmp_path: Path) -> None:
    """A store of the first schema is read, and its documents are converted when it is first opened."""
    await of_the_first_schema(tmp_path)

    found = [await reopened(tmp_path), await reopened(tmp_path)]
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as raw:
        (version,) = raw.execute("PRAGMA user_version").fetchone()
        (document,) = raw.execute("SELECT document FROM nodes").fetchone()

    assert found == [ClusterState(header=header()).apply(full(1))] * 2
    assert (version, document) == (SCHEMA_VERSION, documents.write(node()))


QUOTA = Quota("client/x", QuotaKey.REQUEST_RATE, 0.1)
FASTER = replace(QUOTA, value=1e15)
RULE = Rule("client/x", Permission.DENY, Operation.READ, ResourceType.TOPIC, Pattern.PREFIXED, "a.")


@pytest.mark.parametrize("is_marked", [False, True])
@pytest.mark.parametrize("schema", [2, 3])
async def test_a_store_of_an_earlier_schema_takes_rules_and_quotas(
    tmp_path: Path, schema: int, is_marked: bool
) -> None:
    """It becomes one of today's, which the release before refuses; one that must not serve stays such a one."""
    await stored(tmp_path)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as raw:
        for table in ("acls", "quotas")[schema - 2 :]:
            raw.execute(f"DROP TABLE {table}")
        if is_marked:
            raw.execute("INSERT INTO mark VALUES (1, ?)", (mark_value(Mark(Marked.MOVED, "m", "etcd:e:1/x")),))
        raw.execute(f"PRAGMA user_version = {schema + (1_000 if is_marked else 0)}")
        raw.commit()
    store = SqliteStore(tmp_path)
    before = await store.open_marked()
    await store.commit([Transaction(header=header(2), acls=(RULE, replace(RULE, name="b")), quotas=(QUOTA, FASTER))])
    removed = {"removed_acls": (replace(RULE, name="b"),), "removed_quotas": (FASTER,)}
    await store.commit([Transaction(header=header(3), **removed)])
    found, mark = await store.read(), store.mark
    await store.close()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as raw:
        (version,) = raw.execute("PRAGMA user_version").fetchone()

    assert before == state_of(full())
    assert found is not None
    assert (found.acls, found.quotas) == ((RULE,), (QUOTA,))
    assert (version, mark is not None) == (SCHEMA_VERSION + (1_000 if is_marked else 0), is_marked)


@pytest.mark.parametrize("fields", ['{"node_id":1}', '{"configs":7}', "[]"])
async def test_a_damaged_store_of_the_first_schema_is_left_as_it_is(tmp_path: Path, fields: str) -> None:
    """A document that cannot be converted stops the start; nothing of the store is rewritten."""
    await of_the_first_schema(tmp_path, nodes=documents.sealed(fields))

    await refused(tmp_path, "cannot read NodeRecord")

    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as raw:
        assert raw.execute("SELECT document FROM header").fetchone() == (FIRST_SCHEMA["header"],)
        assert raw.execute("PRAGMA user_version").fetchone() == (1,)


node_ids = st.integers(0, 2**31 - 1).map(NodeId)
several = st.lists(node_ids, max_size=5, unique=True).map(tuple)
partitions = st.builds(
    PartitionImage,
    tp=st.builds(TopicPartition, st.uuids().map(str), st.integers(0, 9_999)),
    replicas=several,
    isr=several,
    elr=several,
    leader=st.none() | node_ids,
    leader_epoch=st.integers(0, 2**31 - 1).map(LeaderEpoch),
    partition_epoch=st.integers(0, 2**31 - 1).map(PartitionEpoch),
    min_isr=st.integers(1, 9),
    recovering=st.booleans(),
    last_unclean_leader_epoch=st.none() | st.integers(0, 2**31 - 1).map(LeaderEpoch),
    observers=several,
    unproven=several,
    adding=several,
    removing=several,
    original=several,
    queued_target=several,
    queue_number=st.integers(0, 2**31),
    throttle_bytes_per_s=st.none() | st.integers(1, 2**63 - 1),
)
endpoints = st.none() | st.builds(Endpoint, st.text(max_size=20), st.integers(1, 65_535))
images = st.builds(
    NodeImage,
    node_id=node_ids,
    node_epoch=st.integers(0, 2**63 - 1).map(NodeEpoch),
    roles=st.frozensets(st.sampled_from(Role)),
    client_endpoint=endpoints,
    internal_endpoint=endpoints,
    rack=st.none() | st.text(max_size=10),
    fenced=st.booleans(),
    shutting_down=st.booleans(),
    disk_nearly_full=st.booleans(),
    draining=st.booleans(),
)
records = st.builds(
    NodeRecord,
    image=images,
    incarnation_id=st.text(max_size=40),
    directory_id=st.text(max_size=40),
    past_incarnations=st.lists(st.text(max_size=5), max_size=3).map(tuple),
)
rules = st.builds(
    Rules,
    truncation=st.sampled_from(Truncation),
    fetch_hw=st.sampled_from(FetchHw),
    isr_join=st.sampled_from(IsrJoin),
    durability=st.sampled_from(Durability),
)


@given(partition=partitions, record=records, cluster_rules=rules)
def test_documents_round_trip(partition: PartitionImage, record: NodeRecord, cluster_rules: Rules) -> None:
    """Every written value reads back equal."""
    whole = ClusterHeader(cluster_id="c", rules=cluster_rules, next_producer_id=2**62, secret="7e" * 32)

    assert documents.read(documents.write(partition), PartitionImage) == partition
    assert documents.read(documents.write(record), NodeRecord) == record
    assert documents.read(documents.write(whole), ClusterHeader) == whole


async def test_which_requests_changed_a_topic_comes_back(tmp_path: Path) -> None:
    """A controller that starts again answers a repeated request from its store (C32)."""
    changed = replace(topic(), created_by="r1", grown_by=("r2", "r3"))
    store = SqliteStore(tmp_path)
    await store.open()
    await store.commit([Transaction(header=header(), topics=(changed,))])
    await store.close()

    found = await reopened(tmp_path)

    assert found is not None
    assert record_of(found.topics[TOPIC]) == changed
