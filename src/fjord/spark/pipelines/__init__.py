"""Ready jobs: each is a function that takes a session of Spark, and a verb of `fjord pipeline`."""
