"""Which rows are worth keeping for good: the prototypes of a class.

Begin with `selector`, whose `choose` is the whole way of the paper: reduce (`dac`), centre (`kmeans`), select
(`nearest`, by a distance of `distance` or `sinkhorn`). `row_selector` chooses without clusters. `select` is the same
for any array. `prototype_settings` has the settings that users write, `flat_settings` the same side by side, for
commands and files.
"""
