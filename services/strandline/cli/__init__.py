"""The `strandline` command: what a person at a terminal, or a script, may ask of a cluster.

Invariant: nothing heavy is imported before a command needs it; `strandline --help` loads neither grpc nor
pyspark. Exit codes everywhere: 0 done, 1 a check failed or the cluster refused, 2 wrong usage or no answer.
"""
