"""How records get from a leader to the reader."""
