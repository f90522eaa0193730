"""Declared tables: columns with names and types, and the rows that are made of them."""
