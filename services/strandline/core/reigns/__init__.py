"""Which of several controllers decides, and for how long."""
