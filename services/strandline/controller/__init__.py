"""The controller's process: its port, its clock, its store, and nothing of its decisions."""
