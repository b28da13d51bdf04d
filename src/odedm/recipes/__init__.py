"""Experiments that are ready to run: those of the demo, and what we recommend."""
