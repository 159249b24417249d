"""The simulator: production cores and what drives them, under seeded faults on virtual time, checked at every event.

Importing it adds the historic truncation rules to those that a core can run under.
"""

from strandline.core.truncation import inject
from strandline.sim.historic_rules import HISTORIC_RULES

inject(HISTORIC_RULES)
