"""Writing: the sink `fjord`, batch and stream, exactly once."""
