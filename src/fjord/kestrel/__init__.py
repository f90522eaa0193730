"""Kestrel's queues: the ops, bytes and files of its journals, read as Kestrel reads them."""
