"""Makes the tables that statistics are computed from, out of events as they were written."""
