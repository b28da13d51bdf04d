"""Memories: which rows of the stream are kept, by a policy or as prototypes."""
