"""One file per published mechanism, reading like its pseudocode."""
