"""The quadratic family of experts, for smooth knobs."""
