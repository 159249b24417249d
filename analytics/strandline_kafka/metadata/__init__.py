"""The history that an Apache Kafka cluster (KRaft) left in its metadata log, as state events."""
