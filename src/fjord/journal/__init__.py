"""The journal: segments of checksummed frames, one per commit.  See docs/journal-format.md."""
