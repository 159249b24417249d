"""Runs of seeds: how one is drawn, shown, made small, and written as a scenario."""
