"""What PySpark asks the JVM only once: which classes stand behind the names that it uses for every column.

For each call of a function PySpark asks the JVM what its name means, and the JVM looks for a class of that name in
every jar of its class path, first by itself and then in each imported package. The statistics make some thousand
columns, so that this took three seconds of a minute. The answer is the same every time.

Invariant: a name means what the JVM said when it was first asked; only names of classes are kept, no objects.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

_CLASSES = ("org.apache.spark.sql.functions", "functions", "PythonUtils")


class _KnownClass:
    """A class of the JVM that remembers its members."""

    def __init__(self, java_class: Any) -> None:
        self._java_class = java_class

    def __getattr__(self, name: str) -> Any:
        # Asked only for what is not remembered yet.
        member = getattr(self._java_class, name)
        setattr(self, name, member)
        return member


def remember_names(spark: SparkSession) -> None:
    """Let the view of the JVM that a session has remember; with Spark Connect there is no JVM, and nothing to do."""
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        return
    for name in _CLASSES:
        # Names stand in the view itself, where Python finds them before it asks the JVM.
        if name not in vars(jvm):
            setattr(jvm, name, _KnownClass(getattr(jvm, name)))


def keep_objects(spark: SparkSession) -> None:
    """Let the JVM keep the objects that Python has released, in a session that ends with its command.

    A report makes some ten thousand of them, each of a few hundred bytes, and Python would report each one in a call
    of its own: a third of all calls.
    """
    gateway: Any = spark.sparkContext._gateway
    gateway._gateway_client.gateway_property.enable_memory_management = False
