"""Where stream, method and memory meet."""
