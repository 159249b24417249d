"""The process of a data node: leader, follower and coordinator over one data directory and one core."""
