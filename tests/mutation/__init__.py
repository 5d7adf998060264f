"""Small faults put into modules one by one: does a test notice each of them?

    python -m tests.mutation [MODULE ...] [--count 25] [--seed 1]

`targets.toml` has the modules, the tests that reach each, and the mutants that no test can notice,
each with the reason. Neither cosmic-ray nor mutmut removes statements (a call of fsync, a check, a
raise) or checks such a list.
"""
