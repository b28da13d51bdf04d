# %% [markdown]
# # A service that learns for ever
#
# Readings come from machines, three kinds at a time; now and then a kind goes and another comes, and one, the fire alarm, comes for a quarter of an hour and then not for days. Nobody says when. You will build a classifier that learns from every reading once, keeps what it knows of kinds
# that are away, never holds more than 200 rows, and can be stopped and go on in another process.

# %%
import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np

import odedm

BATCHES = 900
kinds = np.array(
    [
        "idle",
        "pump",
        "valve",
        "heater",
        "fan",
        "belt",
        "motor",
        "filter",
        "seal",
        "clutch",
        "rotor",
        "FIRE",
    ]
)
centres = 2 * np.random.default_rng(0).normal(size=(len(kinds), 16))


def readings(first, last):
    """Batches of 32 readings of 16 numbers with their names; every 50 batches one kind goes and another comes."""
    for number in range(first, last):
        rng = np.random.default_rng(number)
        kind = (rng.integers(0, 3, 32) + number // 50) % 11
        if 100 <= number < 106:
            kind[rng.random(32) < 0.5] = (
                11  # the alarm: about a hundred rows of all that ever come
            )
        yield centres[kind] + 1.5 * rng.normal(size=(32, 16)), kinds[kind]


# %% [markdown]
# ## A learner
#
# `odedm.Learner` has `partial_fit` and `predict` as estimators of scikit-learn have. It needs no number of classes, no task borders, no scaling of inputs. `patience=1000` says: when a kind was not seen for a thousand
# rows, choose prototypes of it, rows that stand for it, and keep them for good. `ODEDM(200, rho=0.25, candidates=10)` is the room: 200 rows, at most a quarter of them prototypes. Until its prototypes are chosen a kind
# has ten *candidates*, a sample of its own rows from which they are taken; then their places go back to the others. `"er"` is the plainest method, which learns new rows together with stored ones; the default, `"derpp"`, also holds
# on to what the network said of stored rows.

# %%
learner = odedm.Learner(
    "er", memory=odedm.ODEDM(200, rho=0.25, candidates=10), patience=1000
)
for x, y in readings(0, 10):
    learner.partial_fit(x, y)
learner.predict(centres[:4])

# %% [markdown]
# It has met three kinds so far and names everything by these.
#
# ## Test, then train
#
# On a stream that never ends there is no test set. Each batch is predicted first and learned after: `odedm.prequential` counts.

# %%
told = odedm.prequential(learner, readings(10, BATCHES), window=3200)
print(told)
told.by_window

# %% [markdown]
# Rows are counted from the first of this call. The first windows are lower: a kind cannot be named rightly before it has been met. What matters here is what happens to those that are away.
#
# ## What does it still know?
#
# At the end three kinds are about; others were last seen thousands of rows ago, the alarm at the very beginning. We ask for all twelve, and ask the same of a learner without a long-term part, a plain reservoir of
# 200 rows.

# %%
plain = odedm.Learner("er", memory=odedm.Reservoir(200))
odedm.prequential(plain, readings(0, BATCHES))
rng = np.random.default_rng(1)
asked = [
    (centres[at] + 1.5 * rng.normal(size=(200, 16)), kind)
    for at, kind in enumerate(kinds)
]
learners = {"ODEDM": learner, "reservoir": plain}
scores = {
    name: [100 * np.mean(each.predict(x) == kind) for x, kind in asked]
    for name, each in learners.items()
}
# alt: bars of how many of 200 new rows of each kind are named rightly; both learners know the machines, only ODEDM the alarm
figure, axes = plt.subplots(figsize=(7.5, 3))
for place, (name, values) in enumerate(scores.items()):
    colour = ["#0072b2", "#9aa1ac"][place]
    axes.bar(np.arange(12) + 0.4 * place, values, 0.38, label=name, color=colour)
axes.set_xticks(np.arange(12) + 0.2, kinds, rotation=35, ha="right")
axes.set_ylabel("named rightly, %")
axes.legend(frameon=False, ncol=2, loc="lower left", bbox_to_anchor=(0, 1))
plt.show()
for name, each in learners.items():
    held = list(each.rows("all")["y"])
    print(f"{name}: {scores[name][-1]:.0f} % of the alarm's rows named rightly")
    print("  rows it holds:", {str(kind): held.count(kind) for kind in kinds})
    print("  by part:", {at: each.size(at) for at in ("short", "long", "candidates")})

# %% [markdown]
# The eleven machines come back again and again, and both learners know them: where every kind returns, a uniform sample is hard to beat. The alarm came once. A reservoir holds of it what its share of the stream is, and that
# share goes to nothing; the long-term part holds its prototypes whatever comes after. That is what prototypes are for. Candidates are inside the 200 as well: the three kinds that are about have ten each, which are not among the rows
# counted by kind.
#
# What happened to the memory last: after how many rows, what, and to which kinds. *Pinned* means that prototypes of a kind were put into the long-term part.

# %%
learner.events[-1]

# %% [markdown]
# ## Stop, and go on
#
# One file holds weights, memory, optimizer and generators. Another process loads it, learns the next rows, and answers what this one answers after the same rows. Nothing in the file can run code: it is safetensors and JSON.

# %%
learner.save("service.safetensors")
x, y = map(np.concatenate, zip(*readings(BATCHES, BATCHES + 20), strict=True))
np.savez("next.npz", x=x, y=y, asked=centres)

other = """
import numpy as np, odedm
rows, learner = np.load("next.npz"), odedm.Learner.load("service.safetensors")
learner.partial_fit(rows["x"], rows["y"])
np.save("answers.npy", learner.predict_proba(rows["asked"]))
"""
subprocess.run([sys.executable, "-c", other], check=True)

learner.partial_fit(x, y)
same = np.load("answers.npy") == learner.predict_proba(centres)
print("the same to the last bit:", bool(same.all()))

# %% [markdown]
# A network of your own is not in the file; give it again, `odedm.Learner.load(path, net=mine)`. If it has dropout, what it draws after loading is not what it would have drawn.
#
# **Next**: [all of the learner](../how-to/learner.md), its triggers and limits; [what it costs to have no borders](../appendix/learner-measured.md); or [only the memory, in your own loop](own_loop.md).
