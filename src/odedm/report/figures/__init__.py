"""Pictures of runs, a module for each kind: SVG for the page, PNG and SVG as files, the data behind each as CSV."""
