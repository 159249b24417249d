"""The history in the metadata log of an Apache Kafka cluster (KRaft), as state events."""
