"""Finds what services exported, and reads it as it was written."""
