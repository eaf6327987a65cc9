"""The studio: a local web application over the same functions as the command line.

`server` starts it. `app` lists the pages, `pages` are the custodian's, `results` those about a release, `guard` refuses
requests that are not the user's own. `project` is the state of one piece of work, `jobs` runs long work in child
processes, `planner` predicts. `uploads` receives tables and `tables` checks those that stay where they are; `columns`
and `rules` turn forms into parts of a schema.

**Privacy.** The server holds no rows. Rows are read in child processes, through the functions that the command line
uses; everything spent goes through the ledger.
"""
