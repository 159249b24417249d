"""Answers with figures what happened to a cluster: state events in, statistics and a timeline out.

Sources -> silver -> statistics. A statistic is a pure function of silver tables; nothing here decides replication, and
nothing here runs in a service of the data plane.
"""
