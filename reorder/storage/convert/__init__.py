"""Conversion of checkpoints: rules, a plan, and tasks of bounded memory."""
