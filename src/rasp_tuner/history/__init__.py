"""What happened in a situation before: visits, returns, and how long it took to settle."""
