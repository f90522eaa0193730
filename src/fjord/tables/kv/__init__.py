"""Key/value tables."""
