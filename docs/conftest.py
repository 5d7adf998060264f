"""What of this folder holds no doctests: what is Sphinx's, and a program that a test runs."""

collect_ignore = ["conf.py", "_ext", "first.py"]
