"""Find which known layouts some bytes may have: by comparing values, or by size and padding."""
