"""Reorders that convert: stages that load, compute and store, composed tile by tile."""
