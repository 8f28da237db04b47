"""What both stacks share: checks, numerics, snapshots, the ledger of suggestions, the Optimizer protocol."""
