"""Integer noise: its laws, how they are sampled exactly, and the random bits behind it."""
