"""The options of the topic source: Kafka's spelling, and an error that names the option and the remedy."""

from __future__ import annotations

import pytest

from strandline_analytics.topic.errors import TopicReadFailed
from strandline_analytics.topic.options import EARLIEST, LATEST, read_options

NEEDED = {"bootstrap": "127.0.0.1:1", "topic": "t"}


def test_defaults_are_kafkas() -> None:
    """A batch reads from earliest to latest, a stream begins at latest; lost data fails the query."""
    batch, stream = read_options(NEEDED, streaming=False), read_options(NEEDED, streaming=True)

    assert (batch.starting, batch.ending, stream.starting) == ("earliest", "latest", "latest")
    assert batch.fail_on_data_loss
    assert stream.max_offsets_per_trigger is None


def test_names_count_in_any_case() -> None:
    """Names of options count in any case, because Spark passes them in lower case."""
    given = NEEDED | {"startingoffsets": '{"t": {"0": 5, "1": -2}}', "MAXOFFSETSPERTRIGGER": "7"}
    options = read_options(given, streaming=True)

    assert options.starting == {0: 5, 1: EARLIEST}
    assert options.max_offsets_per_trigger == 7


def test_an_end_may_be_given_by_partition() -> None:
    """-1 means latest in the JSON of offsets."""
    options = read_options(NEEDED | {"endingOffsets": '{"t": {"0": 5, "1": -1}}'}, streaming=False)

    assert options.ending == {0: 5, 1: LATEST}


@pytest.mark.parametrize(
    ("changed", "streaming", "reported"),
    [
        ({"topic": ""}, False, "option topic: it is missing; name the topic"),
        ({"bootstrap": " "}, False, "option bootstrap: it is missing; give the controller's address"),
        (
            {"startingOffset": "earliest"},
            False,
            "option startingOffset: the source has no such option; it has bootstra",
        ),
        ({"startingOffsets": "first"}, False, "option startingOffsets: it is 'first'; give earliest, latest, or off"),
        ({"startingOffsets": '{"u": {"0": 1}}'}, True, "option startingOffsets: it is"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, True, "option startingOffsets: it is"),
        ({"startingOffsets": '{"t": [1]}'}, True, "option startingOffsets: it is"),
        ({"startingOffsets": "latest"}, False, "option startingOffsets: it is latest; a batch that starts at the end"),
        ({"endingOffsets": "earliest"}, False, "option endingOffsets: it is earliest; give latest"),
        ({"endingOffsets": "latest"}, True, "option endingOffsets: a stream has no end; leave it out"),
        ({"maxOffsetsPerTrigger": "0"}, True, "option maxOffsetsPerTrigger: it is '0'; give a whole number above 0"),
        ({"maxOffsetsPerTrigger": "9"}, False, "option maxOffsetsPerTrigger: a batch has no triggers; leave it out"),
        ({"minPartitions": "many"}, False, "option minPartitions: it is 'many'; give a whole number above 0"),
        ({"failOnDataLoss": "perhaps"}, False, "option failOnDataLoss: it is 'perhaps'; give true or false"),
    ],
)
def test_a_wrong_option_is_named_with_its_remedy(changed: dict[str, str], streaming: bool, reported: str) -> None:
    """The message begins with the option and ends with the remedy."""
    with pytest.raises(TopicReadFailed) as caught:
        read_options(NEEDED | changed, streaming=streaming)

    assert str(caught.value).startswith(reported)
