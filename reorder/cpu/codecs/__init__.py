"""Elements to values and back, in vector registers."""
