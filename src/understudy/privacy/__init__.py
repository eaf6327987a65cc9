"""What runs may spend about a dataset, written down."""
