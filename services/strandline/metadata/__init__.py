"""REMEMBERS the controller's decisions: one interface, and two stores behind it, SQLite and etcd."""
