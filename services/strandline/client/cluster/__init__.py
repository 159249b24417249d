"""A client's metadata of its cluster, and its requests to controllers."""
