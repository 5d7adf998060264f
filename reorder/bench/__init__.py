"""`memdesc bench`: the speed of reorders beside memcpy and beside installed peers."""
