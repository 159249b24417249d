"""Fetches records from leaders for a consumer."""
