"""The golden numbers: what b1acfb6 computes, and what the working tree is held to."""
