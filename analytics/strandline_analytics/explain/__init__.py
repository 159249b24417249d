"""Why it happened: the chain of events behind one change of an ISR or of a leader."""
