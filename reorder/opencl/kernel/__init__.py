"""From boxes to kernels, without a device: a file for each family of kernels; what they share."""
