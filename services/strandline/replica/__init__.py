"""The host process of a data node: both roles over one data directory and one core. Wiring only."""
