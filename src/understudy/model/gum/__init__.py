"""PrivSyn's model: consistent tables, and rows edited until their counts agree."""
