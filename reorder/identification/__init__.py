"""Which known layouts bytes may have: by the values of a tensor, or by size and zero padding.

`known_layouts` lists them, `candidates` says what was found, `identify` compares.
"""
