"""Benchmarks: `make bench`.  Rates depend on the machine and the run; trust the ratios."""
