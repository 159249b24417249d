"""`strandline sim` and `strandline scenario`."""
