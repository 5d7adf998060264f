"""Elements to values and back, and arithmetic on values, in vector registers."""
