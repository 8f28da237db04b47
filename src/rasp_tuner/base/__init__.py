"""What every room stands on: arithmetic, checks of values and of restored arrays, threads."""
