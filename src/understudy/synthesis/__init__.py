"""The one road from rows to a release: check everything that can be checked, then spend, then finish.

`road` is the way itself. On it: `preflight` (what is checked first), `run` (what is public about a run), `same_table`
(a table declared public must not be the private one), `journal` (book and partial release), `earlier` and
`interrupted` (going on where an attempt ended), `rating` (how good the result is).
"""
