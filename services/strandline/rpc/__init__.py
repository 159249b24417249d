"""TRANSLATES between the protocol's values and gRPC's messages, statuses and channels; no other package does."""

import os

# gRPC's C core reads these variables when grpc is first imported, so this comes before any import of it.

# It writes its own lines to stderr (a refused dial, a taken port); our log says the same once, in plain words.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

# Its fork handlers are of no use to an asyncio program: while other threads are inside gRPC they kill one forked child
# in eight, and most children exec another program at once (PySpark starts its JVM this way). See `rpc.channels.check`.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
