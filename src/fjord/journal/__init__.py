"""The journal: segment files of checksummed frames, one frame a commit.  See docs/journal-format.md."""
