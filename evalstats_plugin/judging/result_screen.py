"""What a judge sees at the end: the ranking in numbers, and where the answers are."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widgets import Footer, Static

from evalstats_plugin.judging.lines import chance, counted, shown

if TYPE_CHECKING:
    from evalstats_plugin.judging.app import JudgingApp
    from evalstats_plugin.judging.standing import Ranking


class ResultScreen(Screen[None]):
    """The result so far; the questions are still there."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,enter", "app.quit", "Quit", key_display="q"),
        Binding("b,escape", "app.pop_screen", "Back to the questions", key_display="b"),
    ]

    def compose(self) -> ComposeResult:
        """Lay out the table, and a line on the file."""
        yield Static(id="top", markup=False)
        with VerticalScroll(id="result", can_focus=True):
            yield Static(id="table", markup=False)
        yield Static(id="closing", markup=False)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Fill in what is known."""
        judging = cast("JudgingApp", self.app)  # pyright: ignore[reportUnknownMemberType] - any app's type
        session, ranking = judging.session, judging.ranking
        count = f"{counted(len(session.given), 'answer')} on {len(session.names)} items"
        self.query_one("#top", Static).update(Text(f"Result · {count}", style="bold"))
        if ranking is not None:
            table = result_table(ranking, session.names)
            self.query_one("#table", Static).update(table)
        saved = f"Saved in {session.path}" if session.given else "No answers, nothing saved"
        self.query_one("#closing", Static).update(Text(saved, style="dim"))


def result_table(ranking: Ranking, names: tuple[str, ...]) -> Table:
    """Lay out ratings, intervals and ranks."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", justify="right")
    table.add_column("item", overflow="fold", min_width=10)
    table.add_column("rating", justify="right", no_wrap=True)
    level = f"{100 * ranking.confidence_level:g} % interval"
    table.add_column(level, justify="right", no_wrap=True)
    table.add_column("rank", justify="right", no_wrap=True)
    table.add_column("best", justify="right", no_wrap=True)
    for place, k in enumerate(ranking.order, 1):
        table.add_row(
            Text(str(place), style="dim"),
            Text(shown(names[int(k)]).replace("\n", " ")),
            f"{ranking.rating[k]:+.2f}",
            f"{ranking.low[k]:+.2f} to {ranking.high[k]:+.2f}",
            f"{ranking.expected_rank[k]:.1f}",
            chance(float(ranking.prob_best[k])),
        )
    return table
