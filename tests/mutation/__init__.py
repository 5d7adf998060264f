"""Small faults put into modules one by one: does a test notice each of them?

    python -m tests.mutation [MODULE ...] [--count 25] [--seed 1]

Neither cosmic-ray nor mutmut removes statements (a call of fsync, a check, a raise), and neither keeps
reasons why a mutant is equivalent; that is what this tool is for.
"""
