"""REPORTS. State events leave the house here: bounded, never in the way of the data path."""
