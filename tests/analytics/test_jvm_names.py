"""What crosses between PySpark and the JVM once, or in one call for many, is what would have crossed one by one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from strandline_analytics.jvm import _RELEASED_AT_ONCE, release_together


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 31])
def test_a_list_of_columns_arrives_whole_and_in_order(spark: SparkSession, count: int) -> None:
    """A list of any length has all its elements in the JVM, in order."""
    names = [f"c{number}" for number in range(count)]
    values = [F.lit(number).alias(name) for number, name in enumerate(names)]

    found = spark.range(1).select(*values, "id").collect()[0].asDict()

    assert found == dict(zip(names, range(count), strict=True)) | {"id": 0}
    assert spark._jvm is not None
    assert spark._jvm.PythonUtils.toSeq(names).mkString(",") == ",".join(names)


def test_a_name_is_one_column_in_the_jvm(spark: SparkSession) -> None:
    """A column that is a name is made once, whatever query it stands in; another name is another column."""
    one, same, other = (cast(Any, F.col(name))._jc._get_object_id() for name in ("a", "a", "b"))

    assert one == same != other


class _Client:
    """The client of a gateway, but that it remembers what it is asked to release."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.queue: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def garbage_collect_object(self, target_id: str) -> None:
        self.queue.append(target_id)


def test_objects_are_released_many_at_a_time(spark: SparkSession) -> None:
    """What Python has released waits until there is enough of it; then all of it leaves the JVM, and nothing else."""
    gateway: Any = spark.sparkContext._gateway
    client: Any = _Client(gateway._gateway_client)
    bindings = gateway._gateway_client
    watched = SimpleNamespace(_gateway=SimpleNamespace(_gateway_client=client, jvm=gateway.jvm))
    release_together(cast(SparkSession, SimpleNamespace(sparkContext=watched)))
    objects = [gateway.jvm.java.lang.Object() for _ in range(_RELEASED_AT_ONCE + 1)]
    *released, kept = (each._get_object_id() for each in objects)

    client.garbage_collect_object(released[0])
    for each in released[:-1]:
        client.garbage_collect_object(each, False)
    held = _held(bindings, gateway, objects)
    client.garbage_collect_object("t", False)
    client.garbage_collect_object("GATEWAY_SERVER", False)
    client.garbage_collect_object(released[-1], False)

    assert released[0] in client.queue
    assert held == {*released, kept}
    assert _held(bindings, gateway, objects) == {kept}


def _held(client: Any, gateway: Any, objects: list[Any]) -> set[str]:
    """Which of the objects the JVM still has."""
    bindings = JavaObject("GATEWAY_SERVER", client).getGateway().getBindings()
    return {each._get_object_id() for each in objects if bindings.containsKey(each._get_object_id())}
