"""Experiments that are ready to run: those of the demo."""
