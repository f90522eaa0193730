"""Jobs tables."""
