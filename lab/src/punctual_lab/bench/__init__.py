"""Benchmarks: what a decision, a refusal and a forwarded request cost, beside other programs."""
