"""`txbroker spark`: jobs on Apache Spark."""
