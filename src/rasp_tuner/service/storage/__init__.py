"""Rows on disk, and the one thread that writes them."""
