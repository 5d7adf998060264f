"""Decode, repack and check records and their bytes."""
