"""How the terminal program is laid out, in Textual's CSS."""

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

/* Items of a few words: they stand in the middle, and the ranking gets the room. */
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
