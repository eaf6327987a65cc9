"""Many marginals of one calibrated tree, sharing the work between them."""
