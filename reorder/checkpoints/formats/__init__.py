"""Formats of files: a module for each, found by its row in `table`.

Each has `read`, which returns the entries of a file, and `plan`, which lays out a new one. They
share `entry`: what both return, and how a file says what a tensor holds.
"""
