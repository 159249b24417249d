"""Determines what an export of Kafka's history can answer, and what it cannot."""
