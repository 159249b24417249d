"""Watches a running Apache Kafka cluster by its public protocol, read-only, and exports state events."""
