"""The terminal program of ``rank compare``: two items side by side, one key an answer."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical, VerticalScroll
from textual.widgets import Footer, Static

from evalstats_plugin.errors import EvalStatsError
from evalstats_plugin.judging.answers import Answer
from evalstats_plugin.judging.items import Items
from evalstats_plugin.judging.lines import counted, progress_line, shown
from evalstats_plugin.judging.panels import RankingPanel, Side
from evalstats_plugin.judging.session import Session
from evalstats_plugin.judging.standing import Goal, Ranking, Standing
from evalstats_plugin.judging.style import CSS

Pair = tuple[int, int]
WIDE = 110
"""Columns from which on the ranking stands beside the items."""
SHORT = 120
"""Characters of an item that needs no room to be read."""


class JudgingApp(App[None]):
    """Asks one judge until they have enough; every answer is saved before the next is asked."""

    CSS = CSS
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f,left", "answer(1)", "Left", key_display="f ←"),
        Binding("j,right", "answer(0)", "Right", key_display="j →"),
        Binding("t", "answer(0.5)", "Tie"),
        Binding("s", "skip", "Skip"),
        Binding("z,u", "undo", "Undo"),
        Binding("r", "toggle_ranking", "Ranking"),
        Binding("q", "finish", "Finish"),
        Binding("down", "scroll_items(2)", show=False),
        Binding("up", "scroll_items(-2)", show=False),
        Binding("pagedown,space", "scroll_items(12)", show=False),
        Binding("pageup", "scroll_items(-12)", show=False),
    ]

    def __init__(
        self, session: Session, items: Items, *, goal: Goal | None = None, seed: int | None = None
    ) -> None:
        super().__init__()
        self.title = "evalstats-plugin rank compare"
        self.HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]
        self.session = session
        self.items = items.in_order(session.names)
        self.goal = goal or Goal()
        self.standing = Standing(len(session.names), session.prior_variance, seed=seed)
        self.pair: Pair | None = None
        """Places of the items shown left and right; None while an answer is worked on."""
        self.ranking: Ranking | None = None
        self._told = False
        # One thread: the posterior is never changed by two at once, nor on the UI's thread.
        self._work = ThreadPoolExecutor(1, thread_name_prefix="ranking")

    def compose(self) -> ComposeResult:
        """Lay out the prompt, both items, the ranking, progress and keys."""
        yield Static(id="top", markup=False)
        with Container(id="body"):
            with Vertical(id="question"):
                with VerticalScroll(id="prompt", can_focus=False):
                    yield Static(shown(self.items.prompt or ""), markup=False)
                with Horizontal(id="pair"):
                    yield Side(id="left")
                    yield Side(id="right")
            yield RankingPanel(id="ranking")
        yield Static(id="progress", markup=False)
        yield Footer(compact=True, show_command_palette=False)

    async def on_mount(self) -> None:
        """Ask for the first pair, going on from what the file holds."""
        short = _are_short(self.items)
        self.screen.add_class("-short" if short else "-long")
        for side in self.query(Side):
            side.in_the_middle = short
        self.query_one("#prompt").display = self.items.prompt is not None
        self.query_one("#left", Side).border_title = "f ← left is better"
        self.query_one("#right", Side).border_title = "right is better → j"
        self.query_one("#ranking", RankingPanel).border_title = "Ranking so far"
        for note in self.session.notes:
            self.notify(note, severity="warning", timeout=20, markup=False)
        self._tell("opened")
        self.run_worker(self._ask(), exclusive=True)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Answer only while the questions are shown, not behind the result."""
        own = action in ("answer", "skip", "undo", "toggle_ranking", "scroll_items", "finish")
        return super().check_action(action, parameters) and not (own and self._is_covered())

    def _is_covered(self) -> bool:
        return len(self.screen_stack) > 1

    def on_unmount(self) -> None:
        """Leave what is still being worked out."""
        self._work.shutdown(wait=False, cancel_futures=True)

    def on_resize(self) -> None:
        """Draw what depends on the width again, once it is known."""
        self.call_after_refresh(self._draw_ranking)

    def action_answer(self, outcome: float) -> None:
        """Take the pair shown as decided."""
        self._answered(outcome)

    def action_skip(self) -> None:
        """Take the pair shown as one this judge does not decide."""
        self._answered(None)

    def action_undo(self) -> None:
        """Take back the last answer and show its pair again."""
        if self.pair is not None:
            shown_now, self.pair = self.pair, None
            self.run_worker(self._undo(shown_now), exclusive=True)

    def action_toggle_ranking(self) -> None:
        """Show or hide the ranking, which may sway a judge."""
        panel = self.query_one("#ranking")
        panel.display = not panel.display
        self.call_after_refresh(self._draw_ranking)

    def action_scroll_items(self, lines: int) -> None:
        """Scroll both items alike."""
        for side in self.query(Side):
            side.scroll_relative(y=lines, animate=False)

    def action_finish(self) -> None:
        """Show the result; from there back to the questions, or out."""
        from evalstats_plugin.judging.result_screen import ResultScreen

        self.push_screen(ResultScreen())

    def _answered(self, outcome: float | None) -> None:
        # Keys that come before the next pair is shown were not meant for it.
        if self.pair is None:
            return
        pair, self.pair = self.pair, None
        for side, share in (
            ("#left", outcome),
            ("#right", None if outcome is None else 1 - outcome),
        ):
            # Of a tie both light up.
            self.query_one(side).set_class(share is not None and share >= 0.5, "-chosen")
        self.run_worker(self._keep(pair, outcome), exclusive=True)

    async def _keep(self, pair: Pair, outcome: float | None) -> None:
        """Save an answer, then ask for the next."""
        self._tell("saving…")
        try:
            await asyncio.to_thread(self.session.answer, *pair, outcome)
        except EvalStatsError as error:
            self._tell("NOT SAVED")
            self.notify(f"not saved: {error}", severity="error", timeout=20, markup=False)
            await self._show_pair(pair)
            return
        self._tell("saved")
        await self._ask()

    async def _undo(self, shown_now: Pair) -> None:
        try:
            answer = await asyncio.to_thread(self.session.undo)
        except EvalStatsError as error:
            self._tell("NOT SAVED")
            self.notify(f"not undone: {error}", severity="error", timeout=20, markup=False)
            answer = None
        if answer is None:
            self.notify("nothing to undo", markup=False)
            await self._show_pair(shown_now)
            return
        self._tell("saved")
        await self._ask(answer)

    async def _ask(self, again: Answer | None = None) -> None:
        """Bring the posterior up to date and show the next pair, or one that was undone."""
        loop = asyncio.get_running_loop()
        given, skipped = self.session.given, self.session.skipped
        pair = await loop.run_in_executor(self._work, self._next, given, skipped, again)
        if pair is None:
            self.notify("every pair was skipped: z undoes, q finishes", timeout=20, markup=False)
            pair = (skipped[-1].first, skipped[-1].second)
        await self._show_pair(pair)
        self.ranking = await loop.run_in_executor(self._work, self.standing.ranking)
        await self._draw_ranking()

    def _next(
        self, given: tuple[Answer, ...], skipped: tuple[Answer, ...], again: Answer | None
    ) -> Pair | None:
        self.standing.update(given)
        if again is not None:
            return again.first, again.second
        chosen = self.standing.choose(self.goal.rule, skipped=skipped)
        return (chosen[0].first, chosen[0].second) if chosen else None

    async def _show_pair(self, pair: Pair) -> None:
        for side, place in zip(("#left", "#right"), pair, strict=True):
            panel = self.query_one(side, Side)
            panel.remove_class("-chosen")
            await panel.show(self.items.items[place])
        self.pair = pair

    async def _draw_ranking(self) -> None:
        """Draw the ranking and how far the goal is reached."""
        if self.ranking is None or self._is_covered():
            return
        panel = self.query_one("#ranking", RankingPanel)
        await panel.show(self.ranking, self.session.names, self.pair or ())
        reached = self.ranking.certainty(self.goal.name)
        bar = self.query_one("#progress", Static)
        bar.update(progress_line(reached, self.goal.wanted, self.goal.words, bar.size.width - 2))
        if reached >= self.goal.wanted and not self._told:
            self._told = True
            self.notify("the certainty asked for is reached: q shows the result", timeout=10)

    def _tell(self, state: str) -> None:
        """Say in the first line what is on disk."""
        ties = sum(answer.outcome == 0.5 for answer in self.session.given)
        said = counted(len(self.session.given), "answer")
        said += f", {counted(ties, 'tie')}" if ties else ""
        said += f", {len(self.session.skipped)} skipped" if self.session.skipped else ""
        judge = f"{self.session.judge} · " if self.session.judge else ""
        style = "bold red" if state.isupper() else "dim"
        top = Text(f"{judge}{said} · ", no_wrap=True)
        top.append(state, style)
        top.append(f" {self.session.path.name}", "dim")
        self.query_one("#top", Static).update(top)


def _are_short(items: Items) -> bool:
    """Whether all items are of a few words, and need little room."""
    return all(len(item.text) <= SHORT and "\n" not in item.text for item in items.items)
