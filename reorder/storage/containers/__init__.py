"""Containers of checkpoints: a file for each format, found by one table."""
