"""What is worth keeping for good: budget, k-means, distances, divide-and-conquer, selection."""
