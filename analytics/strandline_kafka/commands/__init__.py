"""`strandline analytics import kafka` and `collect kafka`."""
