"""Looks at a running Apache Kafka cluster by its public protocol, as state events; it reads only."""
