"""Commands that talk to a cluster, one file per noun."""
