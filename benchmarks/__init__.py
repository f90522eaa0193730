"""Benchmarks: `make bench`.  Rates are of this machine and this run; trust the ratios."""
