"""Strandline: a replicated commit log made of gRPC services, one per role."""

__version__ = "0.1.0"
