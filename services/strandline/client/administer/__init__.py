"""The calls of `Admin`, and what they return."""
