"""The verbs of a scenario."""
