"""Between protobuf and the values of the core, one module per kind of message."""
