"""Networks: features and a linear head with one output for every class of the whole stream."""
