"""Saves a run's state and goes on from it."""
