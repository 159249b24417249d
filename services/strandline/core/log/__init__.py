"""The replicated log: what a leader and a follower do with positions, epochs and the ISR."""
