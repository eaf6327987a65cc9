"""PRIVATE rows, wherever they live, behind one protocol: exact counts of the cells of a set of columns."""
