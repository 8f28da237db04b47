"""The paper, measured: its agents, domains and streams, other readings of it, and the way from it to the engine."""
