"""Reading: the source `fjord`, batch and stream, from cold blocks and from the journal."""
