"""Benchmarks: streams to tune on, agents to compare, and an honest protocol between them."""
