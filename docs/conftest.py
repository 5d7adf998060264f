"""What of this folder is Sphinx's and holds no doctests."""

collect_ignore = ["conf.py", "_ext"]
