"""Coordinators: state machines whose state is a partition of an internal topic, led here (G1 to G10).

`shard` carries a `machine.Machine` on one led partition: it folds the log, appends what the machine decides, and
holds every answer until the records it depends on are committed. It knows nothing of groups or transactions.
"""
