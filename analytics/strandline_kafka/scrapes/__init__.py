"""Where logs ended at the scrapes of a Prometheus, beside the metadata log: LEOs with their bounds, and never a HW."""
