"""How data gets onto the disk."""
