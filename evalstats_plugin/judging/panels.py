"""The parts of the screen that scroll: two items, and the ranking so far."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from evalstats_plugin.judging.items import Item
from evalstats_plugin.judging.lines import item_lines, ranking_lines

if TYPE_CHECKING:
    from evalstats_plugin.judging.standing import Ranking


class Lines(ScrollView, can_focus=False):
    """Lines laid out before, of which those in sight are drawn; it never takes the keys."""

    lines: Sequence[Strip] = ()

    def draw_lines(self, lines: Sequence[Strip]) -> None:
        """Show these from now on."""
        self.lines = lines
        self.virtual_size = Size(self.scrollable_content_region.width, len(lines))
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """Draw one line in sight."""
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

    async def show(self, ranking: Ranking, names: tuple[str, ...], marked: Sequence[int]) -> None:
        """Show the ranking as wide as there is room."""
        width = self.scrollable_content_region.width - 1
        lines = await asyncio.to_thread(ranking_lines, ranking, names, width, marked)
        self.draw_lines(lines)
