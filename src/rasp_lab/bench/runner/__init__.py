"""Running agents on domains: cells, suites, timing."""
