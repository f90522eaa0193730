"""Queues of a Kestrel as rows of Spark."""
