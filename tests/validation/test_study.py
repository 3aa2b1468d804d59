"""What studies share keeps its word."""

import pytest
from study import Streams


def test_a_study_is_refused_the_same_stream_twice():
    streams = Streams("a study")
    streams("scores", 0.5, 10)
    with pytest.raises(ValueError, match=r"'scores / 0\.5 / 10' was given before"):
        streams("scores", 0.5, 10)


def test_streams_depend_on_the_study_its_seed_and_the_name_alone():
    first, second = Streams("a study"), Streams("a study")
    second("scores of others")

    def number(streams, *name):
        return streams(*name).random()

    assert number(first, "scores", 1) == number(second, "scores", 1)
    others = [Streams("a study", seed=1), Streams("another")]
    values = [number(each, "scores", 1) for each in (*others, Streams("a study"))]
    assert len({*values, number(first, "scores", 2)}) == 4
