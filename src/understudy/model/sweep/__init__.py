"""One pass over a junction tree as plain arrays: which tables meet where, and in what order."""
