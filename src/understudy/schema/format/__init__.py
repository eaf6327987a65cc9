"""The schema written down: our file, and those of other tools and people."""
