"""A study: moved by events, with its history and snapshot."""
