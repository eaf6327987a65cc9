"""Columns of which something is still to be bought, and the search that buying takes."""
