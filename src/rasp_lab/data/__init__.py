"""Data sets with their origin and licence."""
