"""Terminal app of ``rank compare``: two items side by side, one key per answer (Textual).

* `JudgingApp`: the questions; `ResultScreen`: the final ranking
* `Lines`, `Side`, `RankingPanel`: scrolling widgets that draw lines prepared off the UI thread
* `item_lines`, `ranking_lines`, `result_table`, `progress_line`: text and lines that are shown
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from typing import ClassVar, cast

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import Heading, Markdown
from rich.table import Table
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, Vertical, VerticalScroll
from textual.geometry import Size
from textual.screen import Screen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Footer, Static

from evalstats_plugin.errors import EvalStatsError, counted
from evalstats_plugin.ranking.judging.items import Item, Items
from evalstats_plugin.ranking.judging.session import Answer, Session
from evalstats_plugin.ranking.judging.standing import Goal, InterimRanking, Standing
from evalstats_plugin.runtime.untrusted import terminal

Pair = tuple[int, int]
WIDE = 110
"""Least width, in columns, at which the ranking is beside the items."""
SHORT = 120
"""Most characters of a short item."""
LONGEST_MARKDOWN = 100_000
"""Most characters laid out as Markdown, in about a second; longer text is shown as it is."""
LEAST_BAR = 8
"""Least width of an interval's bar, in columns."""

_VISIBLE = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | dict.fromkeys(
    (*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD
)
"""Visible signs for characters that move the cursor or change the direction of text."""

CSS = """
* { scrollbar-size-vertical: 1; }
Side, #ranking { scrollbar-gutter: stable; overflow-x: hidden; }
#top { height: 1; padding: 0 1; background: $panel; }
#body { height: 1fr; layout: vertical; }
#question { height: 1fr; width: 1fr; }
#prompt { height: auto; max-height: 5; padding: 0 1; border: round $secondary; }
#pair { height: 1fr; min-height: 5; }
Side { width: 1fr; height: 1fr; padding: 0 1; border: round $primary; border-title-style: bold; }
Side.-chosen { border: heavy $success; background: $success 10%; }
#right { border-title-align: right; }
#ranking { height: 8; padding: 0 1; border: round $secondary; border-title-color: $text-muted; }
#progress { height: 1; padding: 0 1; }

/* Short items are centred, and the ranking gets the space. */
Screen.-short #question { height: auto; }
Screen.-short #pair { height: 7; }
Screen.-short #ranking { height: 1fr; }

Screen.-wide.-long #body { layout: horizontal; }
Screen.-wide.-long #question { height: 1fr; }
Screen.-wide.-long #pair { height: 1fr; }
Screen.-wide.-long #ranking { width: 46; height: 1fr; }

#result { height: 1fr; padding: 1 1; }
#closing { height: auto; padding: 0 1; }
"""


class JudgingApp(App[None]):
    """Asks one judge for comparisons; every answer is saved before the next question."""

    CSS = CSS
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f,left", "answer(1)", "Left", key_display="f ←"),
        Binding("j,right", "answer(0)", "Right", key_display="j →"),
        Binding("t", "answer(0.5)", "Tie"),
        Binding("s", "answer(None)", "Skip"),
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
        """Indices of the items shown left and right; None while an answer is processed."""
        self.ranking: InterimRanking | None = None
        self._notified = False
        # One thread, so that the posterior is updated sequentially and off the UI thread.
        self._work = ThreadPoolExecutor(1, thread_name_prefix="ranking")

    def compose(self) -> ComposeResult:
        """Lay out the prompt, both items, the ranking, progress and keys."""
        yield Static(id="top", markup=False)
        with Container(id="body"):
            with Vertical(id="question"):
                with VerticalScroll(id="prompt", can_focus=False):
                    yield Static(visible(self.items.prompt or ""), markup=False)
                with Horizontal(id="pair"):
                    yield Side(id="left")
                    yield Side(id="right")
            yield RankingPanel(id="ranking")
        yield Static(id="progress", markup=False)
        yield Footer(compact=True, show_command_palette=False)

    async def on_mount(self) -> None:
        """Show the first pair, continuing from the answers in the file."""
        short = all(len(i.text) <= SHORT and "\n" not in i.text for i in self.items.items)
        self.screen.add_class("-short" if short else "-long")
        for side in self.query(Side):
            side.in_the_middle = short
        self.query_one("#prompt").display = self.items.prompt is not None
        self.query_one("#left", Side).border_title = "f ← left is better"
        self.query_one("#right", Side).border_title = "right is better → j"
        self.query_one("#ranking", RankingPanel).border_title = "Ranking so far"
        for note in self.session.answers.notes:
            self.notify(note, severity="warning", timeout=20, markup=False)
        self._show_state("opened")
        self.run_worker(self._ask(), exclusive=True)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Disable actions on questions while the result covers them."""
        asks = action in ("answer", "undo", "toggle_ranking", "scroll_items", "finish")
        if asks and len(self.screen_stack) > 1:
            return False
        return super().check_action(action, parameters)

    def on_unmount(self) -> None:
        """Cancel pending work."""
        self._work.shutdown(wait=False, cancel_futures=True)

    def on_resize(self) -> None:
        """Redraw the ranking, once the new width is known."""
        self.call_after_refresh(self._draw_ranking)

    def action_undo(self) -> None:
        """Undo the last answer and show its pair again."""
        if self.pair is not None:
            shown_now, self.pair = self.pair, None
            self.run_worker(self._undo(shown_now), exclusive=True)

    def action_toggle_ranking(self) -> None:
        """Show or hide the ranking, which may influence a judge."""
        panel = self.query_one("#ranking")
        panel.display = not panel.display
        self.call_after_refresh(self._draw_ranking)

    def action_scroll_items(self, lines: int) -> None:
        """Scroll both items together."""
        for side in self.query(Side):
            side.scroll_relative(y=lines, animate=False)

    def action_finish(self) -> None:
        """Show the result, from which one can return to the questions or quit."""
        self.push_screen(ResultScreen())

    def action_answer(self, outcome: float | None) -> None:
        """Answer the pair shown, or skip it: None."""
        # Ignore keys until the next pair is shown.
        if self.pair is None:
            return
        pair, self.pair = self.pair, None
        for side, share in (
            ("#left", outcome),
            ("#right", None if outcome is None else 1 - outcome),
        ):
            # For a tie, both are highlighted.
            self.query_one(side).set_class(share is not None and share >= 0.5, "-chosen")
        self.run_worker(self._keep(pair, outcome), exclusive=True)

    async def _keep(self, pair: Pair, outcome: float | None) -> None:
        """Save an answer, then ask for the next."""
        self._show_state("saving…")
        try:
            await asyncio.to_thread(self.session.answer, *pair, outcome)
        except EvalStatsError as error:
            self._show_state("NOT SAVED")
            self.notify(f"not saved: {error}", severity="error", timeout=20, markup=False)
            await self._show_pair(pair)
            return
        self._show_state("saved")
        await self._ask()

    async def _undo(self, shown_now: Pair) -> None:
        try:
            answer = await asyncio.to_thread(self.session.undo)
        except EvalStatsError as error:
            self._show_state("NOT SAVED")
            self.notify(f"not undone: {error}", severity="error", timeout=20, markup=False)
            answer = None
        if answer is None:
            self.notify("nothing to undo", markup=False)
            await self._show_pair(shown_now)
            return
        self._show_state("saved")
        await self._ask(answer)

    async def _ask(self, again: Answer | None = None) -> None:
        """Update the posterior and show the next pair, or one that was undone."""
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
        """Draw the ranking and the progress to the goal."""
        if self.ranking is None or len(self.screen_stack) > 1:
            return
        panel = self.query_one("#ranking", RankingPanel)
        await panel.show(self.ranking, self.session.names, self.pair or ())
        reached = self.ranking.certainty(self.goal.name)
        bar = self.query_one("#progress", Static)
        bar.update(progress_line(reached, self.goal.wanted, self.goal.words, bar.size.width - 2))
        if reached >= self.goal.wanted and not self._notified:
            self._notified = True
            self.notify("the certainty asked for is reached: q shows the result", timeout=10)

    def _show_state(self, state: str) -> None:
        """Show in the first line how many answers there are, and whether they are saved."""
        ties = sum(answer.outcome == 0.5 for answer in self.session.given)
        counts = counted(len(self.session.given), "answer")
        counts += f", {counted(ties, 'tie')}" if ties else ""
        counts += f", {len(self.session.skipped)} skipped" if self.session.skipped else ""
        judge = f"{self.session.judge} · " if self.session.judge else ""
        style = "bold red" if state.isupper() else "dim"
        top = Text(f"{judge}{counts} · ", no_wrap=True)
        top.append(state, style)
        top.append(f" {self.session.path.name}", "dim")
        self.query_one("#top", Static).update(top)


class ResultScreen(Screen[None]):
    """Current result, from which one can return to the questions."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,enter", "app.quit", "Quit", key_display="q"),
        Binding("b,escape", "app.pop_screen", "Back to the questions", key_display="b"),
    ]

    def compose(self) -> ComposeResult:
        """Lay out the table of the current ranking and a line about the file."""
        judging = cast("JudgingApp", self.app)
        session, ranking = judging.session, judging.ranking
        count = f"{counted(len(session.given), 'answer')} on {counted(len(session.names), 'item')}"
        yield Static(Text(f"Result · {count}", style="bold"), id="top")
        with VerticalScroll(id="result", can_focus=True):
            yield Static("" if ranking is None else result_table(ranking, session.names))
        saved = f"Saved in {session.path}" if session.given else "No answers, nothing saved"
        yield Static(Text(saved, style="dim"), id="closing")
        yield Footer(compact=True, show_command_palette=False)


class Lines(ScrollView, can_focus=False):
    """Scrolling view of prepared lines; it never takes the keyboard focus."""

    lines: Sequence[Strip] = ()

    def draw_lines(self, lines: Sequence[Strip]) -> None:
        """Replace the lines."""
        self.lines = lines
        self.virtual_size = Size(self.scrollable_content_region.width, len(lines))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw one visible line."""
        at = y + self.scroll_offset.y
        width = self.scrollable_content_region.width
        line = self.lines[at] if at < len(self.lines) else Strip.blank(width)
        return line.adjust_cell_length(width).apply_style(self.rich_style)


class Side(Lines, can_focus=False):
    """One of the two items."""

    item: Item | None = None
    in_the_middle: bool = False

    async def show(self, item: Item) -> None:
        """Show an item from its beginning."""
        self.item = item
        await self._lay_out()
        self.scroll_home(animate=False)

    async def on_resize(self) -> None:
        """Lay the item out for the new width."""
        await self._lay_out()

    async def _lay_out(self) -> None:
        if self.item is None:
            return
        item, (width, height) = self.item, self.scrollable_content_region.size
        middle = self.in_the_middle
        lines = await asyncio.to_thread(item_lines, item, width, height, in_the_middle=middle)
        if item is self.item:
            self.draw_lines(lines)


class RankingPanel(Lines, can_focus=False):
    """The items from the best down, with intervals."""

    async def show(
        self, ranking: InterimRanking, names: tuple[str, ...], marked: Sequence[int]
    ) -> None:
        """Show the ranking in the available width."""
        width = self.scrollable_content_region.width - 1
        lines = await asyncio.to_thread(ranking_lines, ranking, names, width, marked)
        self.draw_lines(lines)


def visible(text: str) -> str:
    """Make control characters visible.

    >>> visible("a" + chr(27) + "[31m")
    'a␛[31m'
    """
    return text.replace("\r\n", "\n").translate(_VISIBLE)


def item_lines(item: Item, width: int, height: int, *, in_the_middle: bool) -> list[Strip]:
    """Lay out one item for a width in columns; short items are centred in the rows."""
    text = visible(item.text)
    if item.markdown and len(text) <= LONGEST_MARKDOWN:
        return _strips(_Markdown(text, hyperlinks=False), width)
    if not text.strip():
        return _strips(Text("(empty)", style="dim italic"), width)
    if not in_the_middle:
        return _strips(Text(text), width)
    lines = _strips(Text(text, style="bold", justify="center"), width)
    return [Strip([])] * ((height - len(lines)) // 2) + lines


class _LeftHeading(Heading):
    """A left-aligned heading."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.stylize("bold underline" if self.tag in ("h1", "h2") else "bold")
        yield self.text


class _Markdown(Markdown):
    elements: ClassVar = {**Markdown.elements, "heading_open": _LeftHeading}


def _strips(content: RenderableType, width: int) -> list[Strip]:
    console = terminal(
        width=max(1, width), file=StringIO(), force_terminal=True, color_system="truecolor"
    )
    return [Strip(line) for line in console.render_lines(content, pad=False)]


def ranking_lines(
    ranking: InterimRanking, names: tuple[str, ...], width: int, marked: Sequence[int] = ()
) -> list[Strip]:
    """Lay out a ranking for a width in columns, with bars for the intervals if there is space.

    Parameters
    ----------
    marked
        Indices of items to highlight: those that are being compared.
    """
    digits = len(str(len(names)))
    longest = max(Text(visible(name)).cell_len for name in names)
    rest = width - digits - 7
    bar = min(40, rest - 1 - min(longest, max(12, rest // 2)))
    bar = bar if bar >= LEAST_BAR else -1
    name_width = max(4, min(longest, rest - bar - 1))
    scale = "worse".ljust(max(0, bar - 6)) + "better" if bar >= 16 else ""
    head = f"{'':{digits}} {'item':{name_width}.{name_width}} {scale:{max(bar + 1, 0)}} best"
    lines = [Text(head, style="dim")]
    for rank, k in enumerate(ranking.order.tolist(), 1):
        name = Text(visible(names[int(k)]).replace("\n", " "), style="bold" if k in marked else "")
        name.truncate(name_width, overflow="ellipsis", pad=True)
        parts = [Text(f"{rank:{digits}} ", style="dim"), name, Text(" ")]
        if bar > 0:
            parts += [interval_bar(ranking, k, bar), Text(" ")]
        lines.append(Text.assemble(*parts, f"{format_probability(float(ranking.prob_best[k])):>5}"))
    return _strips(Text("\n").join(lines), max(width, 16))


def interval_bar(ranking: InterimRanking, place: int, width: int) -> Text:
    """Draw one interval on a common scale, with a dot at the rating."""
    least, most = float(ranking.low.min()), float(ranking.high.max())
    step = (width - 1) / max(most - least, 1e-9)
    ends = (ranking.low[place], ranking.rating[place], ranking.high[place])
    start, dot, end = (round((float(value) - least) * step) for value in ends)
    bar = Text.assemble(
        " " * start,
        ("─" * (dot - start), "dim"),
        ("●", "bold green"),
        ("─" * (end - dot), "dim"),
    )
    bar.truncate(width, pad=True)
    return bar


def progress_line(reached: float, wanted: float, what: str, width: int) -> Text:
    """Draw a progress bar of the certainty of ``what``."""
    words = f"{what} {format_probability(reached)} of {100 * wanted:g} %"
    room = max(4, width - len(words) - 2)
    done = round(room * min(1.0, reached / wanted))
    colour = "green" if reached >= wanted else "yellow"
    return Text.assemble(
        (words, "bold" if reached >= wanted else ""),
        "  ",
        ("━" * done, colour),
        ("━" * (room - done), "dim"),
    )


def result_table(ranking: InterimRanking, names: tuple[str, ...]) -> Table:
    """Table of ratings, intervals and ranks."""
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
            Text(visible(names[int(k)]).replace("\n", " ")),
            f"{ranking.rating[k]:+z.2f}",
            f"{ranking.low[k]:+z.2f} to {ranking.high[k]:+z.2f}",
            f"{ranking.expected_rank[k]:.1f}",
            format_probability(float(ranking.prob_best[k])),
        )
    return table


def format_probability(probability: float) -> str:
    """Format a probability in per cent, without 0 % and 100 %.

    >>> [format_probability(p) for p in (0.97, 0.999, 0.001)]
    ['97 %', '>99 %', '<1 %']
    """
    if probability > 0.99:
        return ">99 %"
    return "<1 %" if probability < 0.01 else f"{100 * probability:.0f} %"
