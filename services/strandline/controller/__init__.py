"""The controller's process: port, clock and store. Its decisions are made in `core.control` and `core.reigns`."""
