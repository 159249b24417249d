"""What a node answers to requests about its logs: produce, fetch, offsets, deletion."""
