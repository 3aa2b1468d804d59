"""Figures: results in, Matplotlib axes out. `catalogue.FIGURES` lists them.

Nothing here touches pyplot or the user's settings. What colours tell, shapes or hatches tell too;
names are shown whole, as they are, whatever they hold.
"""
