"""The simulator: production cores, driven by seeded schedules of faults on virtual time, checked at every event."""
