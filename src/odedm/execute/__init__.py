"""Runs many jobs: on processes, on a GPU, on a cluster."""
