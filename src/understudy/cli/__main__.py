"""`python -m understudy.cli`."""

from understudy.cli import main

main()
