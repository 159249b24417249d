"""Decides which of several controllers is active, and for how long."""
