# %% [markdown]
# # Only the memory, in your own PyTorch loop
#
# You have a training loop and like it. You will give it a memory in four lines: rows go in, draws come out, and when a task is over prototypes of its classes stay for good. No method, stream or network of this package is used.

# %%
import torch
from torch import nn

import odedm

SEEDS = 5
# so small a network is quickest on one core
torch.set_num_threads(1)
# any tensors will do: here pictures [n, 1, 28, 28] as bytes, labels [n]
data = odedm.load_dataset("fashion-mini")
pictures, labels = data.image, data.label
print(pictures.shape, pictures.dtype)

# %% [markdown]
# ## The loop, without a memory
#
# Five tasks of two classes; a batch is seen once. The network takes bytes and scales them itself, so that bytes can be stored: a quarter of the room that floats need.


# %%
class Pixels(nn.Module):
    def forward(self, x):
        return x.flatten(1) / 255


def network(seed):
    torch.manual_seed(seed)
    trunk = nn.Sequential(Pixels(), nn.Linear(784, 128), nn.ReLU())
    return trunk, nn.Sequential(trunk, nn.Linear(128, 10))


def batches(classes, passes=1):
    rows = torch.isin(labels, classes).nonzero().flatten()
    for _ in range(passes):
        for part in rows[torch.randperm(len(rows))].split(16):
            yield pictures[part], labels[part]


def accuracy(net):
    with torch.no_grad():
        right = net(data.test_image).argmax(1) == data.test_label
    return 100 * right.float().mean().item()


def without(seed):
    trunk, net = network(seed)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for classes in torch.arange(10).view(5, 2):
        for x, y in batches(classes):
            loss = nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return accuracy(net)


print(f"without a memory: {without(0):.1f} %")

# %% [markdown]
# Two classes of ten are right, those of the last task. Everything else is forgotten.
#
# ## The same with a memory
#
# Four things are new: make it, sample from it, add to it, and say when a task is over. After the last task nothing follows for which room must be made, so nothing is said there. `last` is how many times the last task comes by; it is needed below.


# %%
def with_memory(seed, k, last=1):
    trunk, net = network(seed)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    # 1: at most 100 rows, of each finished class k for good
    memory = odedm.DualMemory(capacity=100, k=k, seed=seed)
    for task, classes in enumerate(torch.arange(10).view(5, 2)):
        for x, y in batches(classes, last if task == 4 else 1):
            loss = nn.functional.cross_entropy(net(x), y)
            if len(memory):
                # 2: uniformly of all rows; part="long" of the prototypes alone
                old = memory.sample(16)
                past = net(old["images"])
                loss = loss + nn.functional.cross_entropy(past, old["labels"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            # 3: every row once
            memory.add(x, y)
        if task < 4:
            # 4: prototypes, chosen by your network's features
            memory.end_task(classes, embed=trunk)
    return accuracy(net), memory


print(f"a plain reservoir: {with_memory(0, k=0)[0]:.1f} %")
score, memory = with_memory(0, k=6)
print(f"with prototypes:   {score:.1f} %")
print(memory)

# %% [markdown]
# A hundred rows are worth forty points. With `k=0` the memory is a plain reservoir, so the two can be compared in the same loop.
#
# ## When prototypes help
#
# A reservoir is a uniform sample of all that came. While tasks are equally long it has about ten rows of every class, and which rows these are matters little. When one task goes on and on, its rows crowd out the others; prototypes stay. So: five equal tasks, and the same with a last task that comes by eight times (a number that was picked after looking at one and at fifteen, too).

# %%
import matplotlib.pyplot as plt

figure, panels = plt.subplots(1, 2, figsize=(7, 3.2), sharey=True)
for axes, last in zip(panels, (1, 8)):
    plain = [with_memory(seed, 0, last)[0] for seed in range(SEEDS)]
    dual = [with_memory(seed, 6, last)[0] for seed in range(SEEDS)]
    for pair in zip(plain, dual):
        axes.plot([0, 1], pair, "-", color="0.7")
    axes.plot([0] * SEEDS, plain, "s", color="#b8621b", label="k=0, a reservoir")
    axes.plot([1] * SEEDS, dual, "o", color="#0072b2", label="k=6, prototypes")
    gains = [f"{b - a:+.1f}" for a, b in zip(plain, dual)]
    print(f"last task x{last}:", *gains, "points, seed by seed")
    axes.set(xlim=(-0.4, 1.4), xticks=[])
    axes.set_title("tasks of equal length" if last == 1 else "the last task 8 times")
panels[0].set_ylabel("accuracy at the end, %")
panels[0].legend(loc="lower right", fontsize=8)
figure.tight_layout()
plt.show()

# %% [markdown]
# *Accuracy on all ten classes at the end; a grey line joins the two runs of one seed.* With equal tasks the lines go up and down; with one long task they go up. [Forty seeds inside Avalanche and Mammoth](../appendix/integrations-measured.md) found no gain for equal tasks either, and [where it pays](../explanation/where-it-pays.md) has the other cases. What the memory of a long last task holds, class by class:

# %%
for k in (0, 6):
    held = with_memory(0, k, last=8)[1].rows()["labels"]
    print(f"k={k}: rows of each class", held.bincount(minlength=10).tolist())

# %% [markdown]
# ## Keep it with your own checkpoint
#
# `state_dict` is tensors and plain values; `save` and `load` use one safetensors file.

# %%
from pathlib import Path
from tempfile import TemporaryDirectory

with TemporaryDirectory() as folder:
    path = Path(folder) / "memory.pt"
    torch.save(memory.state_dict(), path)
    again = odedm.DualMemory(capacity=100, k=6)
    again.load_state_dict(torch.load(path))
before, after = memory.rows("long"), again.rows("long")
print("the same rows:", torch.equal(before["images"], after["images"]))

# %% [markdown]
# **Next**: [all that the memory can do](../how-to/memory-alone.md): logits and other columns, a whole checkpoint, streams without borders, a GPU. Inside a framework: [Avalanche and Mammoth](../how-to/integrations.md).
