"""Which replicas lie where: a pure function from nodes and partitions to moves with reasons (C90)."""
