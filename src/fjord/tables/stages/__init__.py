"""What is staged, and becomes visible at once."""
