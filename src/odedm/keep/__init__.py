"""What survives a crash, and how: state, checkpoints, seals, locks, and when each is written."""
