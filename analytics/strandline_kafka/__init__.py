"""What belongs to Apache Kafka's world, apart from the records that both systems share."""
