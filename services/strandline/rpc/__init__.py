"""TRANSLATES. The only border between the protocol's values and gRPC with its messages, statuses and channels."""

import os

# gRPC's C core writes lines of its own to stderr (a refused dial, a taken port); ours say the same once and in
# words. It reads the variable when it is first imported, so this stands before any import of grpc.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
