"""Write LLVM: numbers with operators, loops and branches, shuffles, and vectors of elements."""
