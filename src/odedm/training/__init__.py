"""Trains one experiment to its result."""
