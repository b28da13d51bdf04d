# %% [markdown]
# # Compare two memories, and print the table for a paper
#
# You will train one method twice over several seeds, once with a plain reservoir (a uniform sample of all rows so far) and once with ODEDM (which also keeps a few chosen rows of finished tasks, *prototypes*, for good),
# look at what changed, and leave with a LaTeX table. About a minute on one core. You need Python and `pip install -c constraints.txt '.[plot]'` in a checkout ([more](../start/install.md)).
#
# The data is `fashion-mini`, which comes with the package: 300 training and 100 test pictures of each of ten kinds of clothes. They arrive as five tasks of two classes, every batch is seen once,
# and only λ = 100 pictures may be kept.

# %%
import odedm

SEEDS = 3  # five or more for a paper
data = odedm.open_data("fashion-mini")
data

# %% [markdown]
# ## Train twice
#
# `odedm.train` takes what is to be learned and how. The method is DER, which replays old rows with what the network once said of them, and without their labels. `rho=0.25` gives a quarter of the memory to prototypes.
# Only `memory=` differs between the two calls, and the same seeds give both the same stream, the same first weights and the same random crops: what
# differs in the end is due to the memory. The learning rate is one that suits the *plain* reservoir, so that ODEDM has no advantage from it.

# %%
settings = dict(method="der", lr=0.1, batch=10, seeds=SEEDS)
plain = odedm.train(data, memory=odedm.Reservoir(capacity=100), **settings)
dual = odedm.train(data, memory=odedm.ODEDM(capacity=100, rho=0.25), **settings)
dual

# %% [markdown]
# Every row is one seed. `ACC_5` is the accuracy on all ten classes when the stream is over; `Forgetting` is how far the accuracy on earlier tasks has fallen from its best, in points.
#
# ## Side by side
#
# `odedm.Results` puts groups of runs beside each other. Changes are **paired by seed**: each seed's run with ODEDM minus the same seed's run without. The interval in brackets is where the mean change would
# lie if the seeds had been others (95 %, bootstrap).

# %%
results = odedm.Results(plain, dual)
results

# %% [markdown]
# ## Where does the change come from?
#
# After the last task the plain network names almost everything by the newest classes. `by_task()` has the accuracy on each task after each task; here is the last row of that matrix.

# %%
import matplotlib.pyplot as plt
import numpy as np

figure, axes = plt.subplots(figsize=(7, 3))
for place, (name, outcomes) in enumerate({"reservoir": plain, "ODEDM": dual}.items()):
    last = np.mean([each.result.class_il[-1] for each in outcomes], axis=0)
    colour = ["#9aa1ac", "#0072b2"][place]
    axes.bar(np.arange(5) + 0.4 * place, last, 0.38, label=name, color=colour)
names = ["\n".join(data.class_names[2 * t : 2 * t + 2]) for t in range(5)]
axes.set_xticks(np.arange(5) + 0.2, names, fontsize=8)
axes.set_ylabel("accuracy at the end, %")
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# ## What was kept for good
#
# The long-term part of the memory are real training rows, chosen when their task ended. They are raw pictures: you can look at them.

# %%
kept = dual[0].memory.rows(odedm.Part.LONG)
figure, axes = plt.subplots(2, 12, figsize=(9, 1.7))
for place, picture in zip(axes.flat, kept["image"], strict=False):
    place.imshow(picture.squeeze().numpy(), cmap="gray_r")
for place in axes.flat:
    place.axis("off")
plt.show()
print(len(kept["label"]), "prototypes, three of each class of the first four tasks")

# %% [markdown]
# ## The table for a paper
#
# It needs `booktabs` alone. The caption says what the numbers are, so that nobody has to guess what ± means.

# %%
print(results.to_latex(caption="DER on fashion-mini with 100 rows."))

# %% [markdown]
# ## Keep it
#
# `save` writes each run with its settings, its numbers, its memory and its model; `odedm report runs` makes one page of them that can be sent around. Run the same in a year and you get the same numbers.

# %%
plain.save("runs/plain")
dual.save("runs/dual")
odedm.Results("runs")

# %% [markdown]
# ## Is it the memory?
#
# A gain can have other reasons than the one you like. ODEDM's term replays *labels*, which DER does not have; DER++ has them, and gains nothing on this data that six seeds could show. [What the demo shows](../explanation/demo.md) has these
# controls, and [where it pays, and where not](../explanation/where-it-pays.md) more of this kind. Change `method="der"` to `"derpp"` and `lr=0.1` to `0.03` above, and see for yourself.
#
# **Next**: [a service that learns for ever](service.md), or [your own data](../how-to/data.md).
