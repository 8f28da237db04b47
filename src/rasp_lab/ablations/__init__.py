"""What each part of preset `default` is worth: one change at a time, many worlds, one page."""
