"""What brokers wrote down: lines of their logs, clocks, checkpoint files."""
