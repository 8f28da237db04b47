"""Formats on disk: snapshots, and tables of comma-separated values."""
