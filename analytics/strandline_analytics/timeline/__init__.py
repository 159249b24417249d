"""The events of a cluster, in the order in which they were decided."""
