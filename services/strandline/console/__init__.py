"""The web console: pages about what is wrong now, made by the server from the public gRPC API, live while looked at.

`watching` asks the cluster and keeps one `Picture`; `overview` and `findings` are pure functions of it; `pages` writes
them as HTML; `web` serves them, and `streams` sends browsers what changed.
"""
