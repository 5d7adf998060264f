"""From boxes to kernels, without a device: a file for each family, and what they share."""
