"""The only door to private counts: budget, noise, selection, the gate, the receipt and the book."""
