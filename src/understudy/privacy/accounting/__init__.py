"""What noise costs and what may be spent: exact rationals, rounded to the safe side."""
