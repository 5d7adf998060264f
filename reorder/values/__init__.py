"""What the bits of elements mean, and what the parameters of a reorder compute."""
