"""Transactional ids on a coordinator's shard (X1 to X8): who a producer is, what its transaction takes in, how it ends.

Only version 2 of Kafka's transactions is built (KIP-890): each transaction has a producer epoch of its own, and a
partition is added by its leader when the first batch arrives.
"""
