"""REMEMBERS what the controller decided: one interface, one embedded store."""
