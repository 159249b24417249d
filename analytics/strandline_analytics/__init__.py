"""Turns state events into statistics and a timeline, which show in figures what happened to a cluster.

Sources -> silver -> statistics. A statistic is a pure function of silver tables; nothing here decides replication, and
nothing here runs in a service of the data plane.
"""
