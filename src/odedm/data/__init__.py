"""How data gets onto the disk: downloaded, read, checked and kept in a cache that opens at once."""
