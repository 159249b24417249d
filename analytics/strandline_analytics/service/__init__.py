"""Serves statistics, timelines and the state of partitions by gRPC (`AnalyticsService`), from one Spark session."""
