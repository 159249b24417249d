"""The clients of a simulated cluster: producers, consumers, groups, transactions."""
