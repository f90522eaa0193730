"""Declared tables: columns with names and types, and rows."""
