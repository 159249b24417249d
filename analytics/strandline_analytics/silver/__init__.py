"""Makes, from events as they were written, tables that statistics can be computed from."""
