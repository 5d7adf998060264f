"""From boxes to kernels, without a device: a file for each family of kernels, and what they share."""
