"""What a client knows of its cluster, and how it keeps asking."""
