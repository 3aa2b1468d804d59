"""The table of methods is complete, loads, and picks defaults that fit."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from evalstats_plugin import Method
from evalstats_plugin.comparisons.methods import UNPAIRED
from evalstats_plugin.data.methods import Kind, check_name, choose, table_of
from evalstats_plugin.errors import PluginError, SelectionError
from evalstats_plugin.plugins import PURPOSES
from evalstats_plugin.scores.methods import COMPOSITE_DEFAULTS, DEFAULTS, INTERVALS, METHODS

TABLE = table_of((), INTERVALS)
SCORES = np.array([[1.0, 0.0, 1.0, 1.0, 0.0, 1.0] * 5])
ARGUMENTS = {
    "binary": ((np.array([20.0]), np.array([30.0])), {}),
    "bounded": ((SCORES,), {"bounds": (0.0, 1.0)}),
    "bounded-attained": ((SCORES,), {"bounds": (0.0, 1.0), "attained": (np.array([True]),) * 2}),
    "real": ((SCORES,), {}),
    "resampling": ((SCORES,), {"n_resamples": 999, "rng": np.random.default_rng(0)}),
    "ratio": ((SCORES, np.ones_like(SCORES)), {}),
}


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.name)
def test_every_method_loads_and_brackets_the_mean(method: Method) -> None:
    """Called as its family says."""
    arguments, more = ARGUMENTS[method.family]
    low, high = method.load()(*arguments, confidence_level=0.9, **more)

    assert np.shape(low) == (1,)
    assert low[0] < 4 / 6 < high[0]


def test_every_kind_has_a_default_that_serves_it() -> None:
    """And a reason."""
    assert set(get_args(Kind)) == {*DEFAULTS, *COMPOSITE_DEFAULTS}
    for kind, (name, why) in DEFAULTS.items():
        assert TABLE[name].serves(kind)
        assert why
        assert TABLE[name] is choose(kind, "auto", TABLE, DEFAULTS)


def test_a_named_method_is_chosen_only_where_it_fits() -> None:
    """Else the default."""
    assert choose("binary", "wilson", TABLE, DEFAULTS).name == "wilson"
    assert choose("bounded", "wilson", TABLE, DEFAULTS).name == "reach"


def test_an_unknown_name_gets_the_closest() -> None:
    """And the list of all."""
    with pytest.raises(SelectionError, match=r"did you mean wilson.*There are: auto, beta-hpd"):
        check_name("wison", TABLE)


def test_a_method_for_another_question_is_refused_with_its_question() -> None:
    """Not as one that does not exist."""
    with pytest.raises(SelectionError, match=r"'mn-ratio' is for models on items of their own"):
        check_name("mn-ratio", TABLE, PURPOSES)
    with pytest.raises(SelectionError, match=r"'wilson' is for the interval of one score"):
        check_name("wilson", table_of((), UNPAIRED), PURPOSES)


def test_a_method_that_cannot_be_loaded_is_named() -> None:
    """A typing error in a plugin's table."""
    with pytest.raises(PluginError, match="'nowhere:f' of method 'odd' cannot be loaded"):
        Method("odd", "binary", "nowhere:f", "", "").load()
