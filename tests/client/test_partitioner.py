"""The partition of a key: the same one that Kafka's own client chooses."""

from __future__ import annotations

import random

import pytest

from strandline.client.produce.routes import StickyPartition, murmur2, partition_for_key

# Kafka's UtilsTest.testMurmur2, as signed numbers.
KAFKA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), KAFKA.items())
def test_murmur2_is_kafkas(key: bytes, signed: int) -> None:
    """The hash of each of Kafka's own test keys equals Kafka's."""
    assert murmur2(key) == signed & 0xFFFFFFFF


def test_murmur2_equals_another_client() -> None:
    """Hash and partition agree with kafka-python's for keys of every length."""
    partitioner = pytest.importorskip("kafka.partitioner.default")
    other = getattr(partitioner, "murmur2", None) or pytest.importorskip("kafka.partitioner.murmur2").murmur2
    draw = random.Random(7)
    keys = [draw.randbytes(length) for length in range(64)]

    assert [murmur2(key) for key in keys] == [other(key) & 0xFFFFFFFF for key in keys]


def test_partition_is_positive_modulo() -> None:
    """The sign bit is dropped before the modulo, as in Kafka's toPositive."""
    assert partition_for_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7


def test_sticky_moves_on_to_partitions_with_a_leader() -> None:
    """Another partition is chosen each time, one without a leader only if there is no other."""
    sticky = StickyPartition(random.Random(1))
    seen = [sticky.choose(4, [0, 2]) for _ in range(6)]

    assert seen in ([0, 2] * 3, [2, 0] * 3)
    assert StickyPartition().choose(1, []) == 0
