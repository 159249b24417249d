"""One schema: the table, the contract and the readers' DDL never drift apart."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor

from strandline import core, observe
from strandline.core.state_events import EVENT_TYPES as CLASSES
from strandline.export.schema import (
    COLUMNS,
    DATASETS,
    ENVELOPE,
    EVENT_TYPES,
    MEMBER_FIELDS,
    PAYLOAD,
    ColumnType,
    spark_ddl,
)
from strandline.v1 import state_event_pb2

STATE_EVENT = state_event_pb2.StateEvent.DESCRIPTOR
F = FieldDescriptor
PLAIN = {
    F.TYPE_STRING: ColumnType.STRING,
    F.TYPE_INT32: ColumnType.INT,
    F.TYPE_INT64: ColumnType.LONG,
    F.TYPE_BOOL: ColumnType.BOOL,
}
LISTS = {F.TYPE_INT32: ColumnType.INTS, F.TYPE_STRING: ColumnType.STRINGS, F.TYPE_MESSAGE: ColumnType.MEMBERS}
MAPS = {F.TYPE_STRING: ColumnType.STRINGS_BY_NAME, F.TYPE_INT64: ColumnType.LONGS_BY_NAME}


def _kind(field: FieldDescriptor) -> ColumnType:
    if field.type == F.TYPE_ENUM:
        return ColumnType.STRING
    entry = field.message_type
    if entry is not None and entry.GetOptions().map_entry:
        assert entry.fields_by_name["key"].type == F.TYPE_STRING, (
            f"Spark reads only string keys from JSON: {field.name}"
        )
        return MAPS[entry.fields_by_name["value"].type]
    return LISTS[field.type] if field.is_repeated else PLAIN[field.type]


def _made_in_the_sources() -> Iterator[str]:
    """The names of the event classes that cores and observer make."""
    for path in (path for package in (core, observe) for path in Path(package.__path__[0]).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                yield ast.unparse(node.func).removeprefix("state_events.")


def test_every_type_of_the_schema_is_emitted() -> None:
    """One that is never emitted would be a false promise; the export makes its own."""
    classes = {known.kind.__name__ for name, known in CLASSES.items() if not name.startswith("EXPORT_")}

    assert classes - set(_made_in_the_sources()) == set()


def test_the_contract_has_the_columns_of_the_schema() -> None:
    """Names, order and types of StateEvent are those of the table."""
    assert [(f.name, _kind(f)) for f in STATE_EVENT.fields] == [(c.name, c.kind) for c in COLUMNS]


def test_the_contract_has_the_event_types_of_the_schema() -> None:
    """Every value of the enum but the zero is a type of the table, in its order."""
    values = [value.name for value in state_event_pb2.StateEventType.DESCRIPTOR.values]

    assert values == ["STATE_EVENT_TYPE_UNSPECIFIED", *(f"STATE_EVENT_TYPE_{name}" for name in EVENT_TYPES)]


def test_a_member_has_the_fields_of_the_contract() -> None:
    """The struct in `removed` and `added` is IsrChangeMember."""
    fields = state_event_pb2.IsrChangeMember.DESCRIPTOR.fields

    assert tuple((f.name, PLAIN[f.type]) for f in fields) == MEMBER_FIELDS
    assert ColumnType.MEMBERS.value == f"ARRAY<STRUCT<{', '.join(f'{n}: {k.value}' for n, k in MEMBER_FIELDS)}>>"


def test_what_may_be_null_may_be_absent() -> None:
    """A column that is not set in every row has presence in the contract, unless it is a list or a map."""
    single = [c for c in COLUMNS if c.kind in PLAIN.values()]

    assert [c.name for c in single if STATE_EVENT.fields_by_name[c.name].has_presence is c.required] == []


@pytest.mark.parametrize("name", EVENT_TYPES)
def test_an_event_type_names_columns_that_exist(name: str) -> None:
    """A payload is made of columns, each once, and belongs to a known dataset."""
    event_type = EVENT_TYPES[name]

    assert set(event_type.payload) <= {c.name for c in PAYLOAD}
    assert len(set(event_type.payload)) == len(event_type.payload)
    assert event_type.dataset in DATASETS


def test_every_payload_column_belongs_to_an_event_type() -> None:
    """Every declared column is set by some event."""
    used = {name for event_type in EVENT_TYPES.values() for name in event_type.payload}

    assert [c.name for c in PAYLOAD if c.name not in used] == []


def test_a_column_has_one_name() -> None:
    """No name occurs twice, in the envelope or beside it."""
    names = [c.name for c in COLUMNS]

    assert len(set(names)) == len(names) == len(ENVELOPE) + len(PAYLOAD)


def test_spark_gets_every_column() -> None:
    """The DDL names all columns with Spark's types, in the order of the table."""
    assert spark_ddl().startswith("schema_version INT, cluster_id STRING, event_type STRING, node_id INT,")
    assert spark_ddl().endswith(
        "removing_replicas ARRAY<INT>, target_replicas ARRAY<INT>, waiting_for ARRAY<STRING>, "
        "principal STRING, peer STRING, method STRING, resource_type STRING, resource_name STRING, rule STRING, "
        "before MAP<STRING, STRING>, after MAP<STRING, STRING>"
    )
