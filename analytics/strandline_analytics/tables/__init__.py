"""Results as tables of a catalog: Apache Iceberg and Delta Lake, by their own runtimes for Spark."""
