"""Layouts to loop nests: pure functions and values."""
