"""A data node's files: segments, indexes, checkpoints, and the decision what to trust of them after a crash."""
