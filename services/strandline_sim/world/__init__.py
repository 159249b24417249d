"""The world of a run: processes with their disks, on one network and one clock, and their faults."""
