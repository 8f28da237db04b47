"""Real servers that are killed, flooded and lied to: do the promises of docs/RELIABILITY.md hold?"""
