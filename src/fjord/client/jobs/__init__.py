"""Jobs: a table of them, and what its calls send and read."""
