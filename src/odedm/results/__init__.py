"""What a finished run leaves, and how it is checked."""
