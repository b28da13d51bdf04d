"""What arrives: data sets, the tasks they are cut into, and what is done to their rows on the way."""
