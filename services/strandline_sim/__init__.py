"""The simulator: production cores and what drives them, under seeded faults on virtual time, checked at every event.

Importing it adds the historic rules to those that a core can run under.
"""

from strandline_sim.runs import historic_rules

historic_rules.install()
