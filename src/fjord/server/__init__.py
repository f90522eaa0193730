"""The daemon: sessions that speak FJ, and the committer that turns many requests into one fsync."""
