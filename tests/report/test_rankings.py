"""Rankings on the terminal and in Markdown."""

from __future__ import annotations

from io import StringIO

import numpy as np
from scipy import special

from evalstats_plugin.ranking.contests.contests import Contests
from evalstats_plugin.ranking.rank import rank
from evalstats_plugin.report.rankings import RANKING
from evalstats_plugin.report.text import to_csv, to_json


def contests(n: int = 4, names: tuple[str, ...] | None = None) -> Contests:
    rng = np.random.default_rng(0)
    i = rng.integers(0, n, 200 * n)
    j = (i + rng.integers(1, n, 200 * n)) % n
    won = rng.random(200 * n) < special.expit((j - i) / 2)
    return Contests.of(i, j, won.astype(float), players=names or n)


def printed(found: object, width: int = 80) -> str:
    out = StringIO()
    RANKING.print_table(found, out, heading="made by a test", width=width)  # pyright: ignore[reportArgumentType]
    return out.getvalue()


def test_the_table_has_a_line_for_each_player_and_says_what_it_means() -> None:
    text = printed(rank(contests(), model="bradley-terry", rng=0))
    lines = text.splitlines()

    assert lines[0].strip() == "4 players, 800 comparisons, bradley-terry ml, sandwich"
    header = ["Player", "Rating", "95", "%", "interval", "Rank", "Ranks", "P(best)", "Letters", "n"]
    assert header == lines[1].split()
    first = lines[3].split()
    assert ("player_0", "1.0", "1", ">99", "a") == (
        first[0],
        first[4],
        first[5],
        first[6],
        first[8],
    )
    words = " ".join(text.split())
    assert "A difference of 1: 2.72 wins for 1 loss; the mean rating is 0." in words
    assert "Of the 4.6 bits that an order of 4 has, 0." in words
    assert "0.0 % of 4 triads go in a circle" in words
    assert words.endswith("made by a test")


def test_long_names_and_many_letters_fit_80_columns() -> None:
    """Names lose what they share, and stay apart; letters are folded."""
    names = tuple(
        f"organisation/some-model-{k}-instruct-2026-with-a-very-long-name" for k in range(30)
    )
    rng = np.random.default_rng(0)
    i = rng.integers(0, 30, 900)
    j = (i + rng.integers(1, 30, 900)) % 30
    won = rng.random(900) < special.expit((j - i) / 8)
    votes = Contests.of(i, j, won.astype(float), players=names)
    found = rank(votes, model="thurstone", estimator="ep", rng=0, scale="elo")
    text = printed(found)

    assert max(map(len, text.splitlines())) <= 80
    table = text.split("378 points")[0].splitlines()[3:]
    shown = [line.split(" ")[0] for line in table if line.startswith("organisation/some-model-")]
    assert len(set(shown)) == 30
    for row, name in zip(found, shown, strict=True):
        start, _, end = name.partition("…")
        assert row.player.startswith(start)
        assert row.player.endswith(end)
    assert max(len(row.letters) for row in found) > 1


def test_elo_says_which() -> None:
    logit = printed(rank(contests(), model="bradley-terry", rng=0, scale="elo"))
    probit = printed(rank(contests(), model="thurstone", estimator="ep", rng=0, scale="elo"))

    assert "400 points: 10 wins for 1 loss; the mean rating is 1000." in " ".join(logit.split())
    assert "378 points: 10 wins for 1 loss;" in " ".join(probit.split())
    assert "." not in logit.splitlines()[3].split()[1]


def test_markdown_csv_and_json_hold_the_same_rows() -> None:
    found = rank(contests(3, ("a|b", "c", "d")), rng=0)
    markdown = RANKING.to_markdown(found, "how").splitlines()

    assert markdown[2].startswith("| Player | Rating | 95 % interval | Rank | Ranks | P(best) |")
    assert markdown[4].startswith("| a\\|b | +")
    assert markdown[-1] == "how"
    assert len(to_csv(found).splitlines()) == 4
    assert '"player": "a|b"' in to_json(found, {"command": "rank"})
