"""Membership of a consumer group, and its committed offsets."""
