"""Runs of seeds: drawing, showing and shrinking them, and writing them as scenarios."""
