"""The numeric heart of the quadratic family: state as arrays with a leading axis of tuners, steps as functions."""
