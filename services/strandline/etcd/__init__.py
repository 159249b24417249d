"""SPEAKS to etcd: its messages, one call, one watch, and which member is asked next."""
