"""What is written down about spending: payments, receipts, the book and its yearly limit."""
