"""`strandline perf`: producing and consuming under a bounded load, measured."""
