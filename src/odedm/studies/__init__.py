"""Studies: many experiments as data, which of them are done, and doing the rest."""
