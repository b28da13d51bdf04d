"""How to learn from a batch and a replay."""
