"""Searches of every order of steps in small worlds."""
