"""Reads what brokers recorded: lines of their logs, clocks, checkpoint files."""
