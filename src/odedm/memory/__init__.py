"""Memories: which rows of the stream are kept, by a policy or as prototypes.

Begin with `dual`: the algorithm is its `DualBuffer`, of which a run, a `DualMemory` and a `Learner` have one each.
`settings.ODEDM` is its configuration, `odedm.DualMemory` its wrapper for a training loop of your own. Its parts:

- `buffer`: rows by priority, short-term ones that compete and long-term ones that are pinned; policies derive from it:
  `reservoir`, `balanced_reservoir` (CBRS), `greedy_balance` (GDumb), `gradient_diversity` (GSS), `shapley` (ASER),
  `purity` (PuriDivER), `herding` (iCaRL), `quota_buffers` (FDR, GEM);
- `candidate_pool`: the rows among which prototypes are chosen;
- `quotas`: how many prototypes a class gets, F_k;
- `odedm.selection`: which rows these are.

`settings` has the configurations that users write and builds the memory of a run from them, with `single_memory`,
`build_context` and `paper_preset`; `open_stream` builds that of a stream of which nobody knows the tasks. `live` is
`odedm.DualMemory`, with its rows, states and folders in the modules `live_…`, `snapshot`, `changing` and `merge`.
"""
