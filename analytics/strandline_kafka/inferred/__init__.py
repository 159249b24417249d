"""Causes that were not recorded, by rules: what a rule says, by which evidence, what would refute it.

An inferred cause never stands where a recorded one does: it leaves as ``ext.inferred`` of the event that it is about.
"""
