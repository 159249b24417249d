"""SPEAKS to etcd: its messages, single calls, watches, and the choice of the member to ask."""
