"""What must hold after every event, and what a run remembers to judge it."""
