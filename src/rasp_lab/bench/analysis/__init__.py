"""From steps to numbers, tests and claims."""
