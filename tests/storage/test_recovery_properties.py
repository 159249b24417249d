"""For any damage to the bytes of a log, recovery leaves a prefix of its batches, and one recovery is enough."""

from __future__ import annotations

from damaged_logs import WOUNDS, check_epochs, check_indexes, check_recovery
from hypothesis import given, settings
from hypothesis import strategies as st

DAMAGE = st.tuples(st.sampled_from(WOUNDS), st.integers(0, 9), st.integers(0, 2_000), st.integers(1, 300))


@settings(max_examples=5 * settings.default.max_examples // 2)
@given(wounds=st.lists(DAMAGE, min_size=1, max_size=2), drop_indexes=st.booleans())
def test_recovery_leaves_a_prefix_and_is_idempotent(tmp_path_factory, wounds, drop_indexes) -> None:
    """Random truncation, flipped bit, duplicated block, zero fill: the result is a prefix; twice equals once."""
    check_recovery(tmp_path_factory.mktemp("data") / "t-0", wounds, drop_indexes=drop_indexes)


@given(
    suffix=st.sampled_from([".index", ".timeindex"]),
    content=st.none() | st.binary(max_size=200),
    flips=st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=3),
    clean=st.booleans(),
)
def test_index_files_are_never_wrong_only_rebuilt(tmp_path_factory, suffix, content, flips, clean) -> None:
    """For any content of an index file, reads and seeks by time give the same answers."""
    check_indexes(tmp_path_factory.mktemp("data") / "t-0", suffix, content, flips, clean=clean)


@given(content=st.none() | st.binary(max_size=60) | st.text("0123456789 \n", max_size=40).map(str.encode))
def test_epochs_are_those_of_the_batches_whatever_the_file_says(tmp_path_factory, content) -> None:
    """A missing, damaged or contradicting epoch checkpoint gives the epochs of the batches (M55)."""
    check_epochs(tmp_path_factory.mktemp("data") / "t-0", content)
