"""Rows in folders of files, databases and Spark: read in batches, or coded and counted where they are.

`located` opens any of them. Files and DuckDB are read once (`duckdb`, `kept`), bounded (`bound`), and their codes kept
in nameless files (`stream`, `store`, `temp`). PostgreSQL and Spark do the work themselves (`engine`), by statements
that a `grammar` writes, from steps and lookup tables that the schema's encoder makes (`pieces`).
"""
