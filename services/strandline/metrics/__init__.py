"""COUNTS: what a process is seen to do, in Prometheus form, and what it is called."""
