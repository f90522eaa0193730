"""The journal: segments of checksummed frames, one a commit.  See docs/journal-format.md."""
