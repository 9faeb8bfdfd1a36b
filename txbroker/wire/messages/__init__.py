"""One module an API: its request, its response and their nested structs; and the records of internal topics.

The declarations hold what Kafka 3.9.1 and 4.3.1 agree on, every version of the union of both ranges. Modules are imported one
by one by who needs them, so that start-up pays only for the APIs that are served.
"""
