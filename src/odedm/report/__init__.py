"""Tables, figures and one self-contained page from the folders of finished runs."""
