"""What we recommend, with the evidence."""
