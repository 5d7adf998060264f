"""What the bits of elements and the parameters of a reorder mean, by definition."""
