"""What the engine and the paper both are: the protocol of an optimizer, its preset, its metrics."""
