"""TRANSLATES. The only border between the protocol's values and gRPC with its messages, statuses and channels."""

import os

# gRPC's C core reads these variables when grpc is first imported, so this comes before any import of it.

# It writes lines of its own to stderr (a refused dial, a taken port); ours say the same once and in words.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

# Its fork handlers serve no asyncio program: while other threads are in gRPC they end one forked child in eight, and
# what is forked usually becomes another program at once (PySpark starts its JVM so). `rpc.forks` decides the rest.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
