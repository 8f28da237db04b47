"""The discrete family of experts, for integer, categorical and rugged knobs."""
