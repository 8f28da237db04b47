"""One question each: commands that print the tables of the docs."""
