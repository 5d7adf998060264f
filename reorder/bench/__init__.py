"""`memdesc bench`: how fast reorders are, beside memcpy and whatever else is installed that can do them."""
