"""From boxes to kernels, without a device: how a family lowers a nest, its text and parameters."""
