"""What users hold in their hands: databases and tables, the same over a directory or a daemon."""
