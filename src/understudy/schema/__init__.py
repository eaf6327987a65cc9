"""PUBLIC facts about a table: columns, categories, bounds, bins; the file format; encoding and decoding."""
