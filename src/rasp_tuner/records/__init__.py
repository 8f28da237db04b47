"""What a tuner keeps of its own steps: suggestions, who made what from whom, records of steps."""
