"""The paper's algorithm in slow, clear float64: what `odedm.ODEDM.paper` must choose, whatever the defaults become.

Written from arXiv:2505.18101 (Section 3, Algorithms 1 and 2) with numpy alone, one module for each piece; nothing here
imports the package. Where the paper is silent, a module says which reading it takes.
"""
