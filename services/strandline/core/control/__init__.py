"""What the controller decides: nodes, topics, partitions, elections."""
