"""Writers of synthetic rows: to files, to PostgreSQL and to Spark."""
