"""Runs of seeds: how one is drawn, shown, made small, and told as a scenario."""
