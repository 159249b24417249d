"""Checks of the invariants after every event, and the memory that they need."""
