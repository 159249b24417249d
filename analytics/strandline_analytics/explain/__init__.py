"""Explains why something happened: the chain of events behind one change of an ISR or of a leader."""
