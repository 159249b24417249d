"""Who uses a simulated cluster: producers, consumers, groups, transactions."""
