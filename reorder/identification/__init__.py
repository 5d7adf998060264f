"""Find which known layouts bytes may have: by the same values, or by size and zero padding."""
