"""The simulator: production cores and what drives them, under seeded faults on virtual time, checked at every event.

Importing it adds the historic rules to those that a core can run under.
"""

from strandline.core.log import isr, truncation
from strandline.core.serving import fetch
from strandline_sim.runs.historic_rules import HISTORIC_HW, HISTORIC_JOINS, HISTORIC_TRUNCATION

truncation.inject(HISTORIC_TRUNCATION)
fetch.inject(HISTORIC_HW)
isr.inject(HISTORIC_JOINS)
