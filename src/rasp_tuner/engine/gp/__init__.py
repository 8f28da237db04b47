"""The Gaussian-process family: one model for spaces with discrete or mixed knobs."""
