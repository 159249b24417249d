"""Commands that ask a cluster, by the noun they are about."""
