"""Boxes to kernels: how each family lowers a nest, its text, its parameters; without a device."""
