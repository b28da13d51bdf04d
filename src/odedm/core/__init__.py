"""What all other rooms use: rows, the store, settings, the registry of names, files, generators, errors."""
