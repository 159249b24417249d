"""What a data node remembers: segments, indexes, checkpoints, and what is believed of them after a crash."""
