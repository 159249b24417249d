"""Log ends at the scrapes of a Prometheus, in addition to the metadata log: LEOs with bounds, and never a HW."""
