"""What it takes to be fast: streams and recorded graphs of a GPU, Triton's kernels, threads of a processor."""
