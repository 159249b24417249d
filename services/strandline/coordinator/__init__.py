"""The service of coordinators: GroupService of a data node."""
