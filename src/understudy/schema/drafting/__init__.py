"""A first schema for a person to review: from the rows, or from the names alone."""
