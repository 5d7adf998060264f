"""Conversion of checkpoints: rules, a plan, and tasks of bounded memory.

`conversion` has `convert`, with its `options`. `rules` are what a user gives, and `targets` makes
them for whole models. `plan` applies rules to tensors, and checks that the new formats hold the
scales. `outputs` plans the files, and `declaring` what config.json says.
"""
