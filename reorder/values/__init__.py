"""The meaning of the bits of elements, and of the parameters of a reorder, by definition."""
