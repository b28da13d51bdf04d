"""Entropic optimal transport: the distance, its solver and its estimates."""
