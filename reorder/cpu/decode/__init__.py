"""Records decoded by compiled code: a kernel for each pattern of fields in a block."""
