# %% [markdown]
# # Only the memory, in your own PyTorch loop
#
# You have a training loop and like it. You will give it a memory in four lines: rows go in, draws come out, and when a task is over prototypes of its classes stay for good. No method, stream or network of this package
# is used. Twenty seconds on one core.

# %%
import torch
from torch import nn

import odedm

SEEDS = 3
data = odedm.open_data(
    "fashion-mini"
)  # any tensors will do: pictures [n, 1, 28, 28] as bytes, labels [n]
pictures, labels = data.image / 255, data.label
test_pictures, test_labels = data.test_image / 255, data.test_label

# %% [markdown]
# ## The loop, without a memory
#
# Five tasks of two classes; a batch is seen once. This is an ordinary loop.


# %%
def network(seed):
    torch.manual_seed(seed)
    trunk = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU())
    return trunk, nn.Sequential(trunk, nn.Linear(128, 10))


def batches(classes, size=16):
    rows = torch.isin(labels, classes).nonzero().flatten()
    for part in rows[torch.randperm(len(rows))].split(size):
        yield pictures[part], labels[part]


def accuracy(net):
    with torch.no_grad():
        return (
            100 * (net(test_pictures).argmax(1) == test_labels).float().mean().item()
        )


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
# Two classes of ten are right: those of the last task. Everything else is forgotten.
#
# ## The same with a memory
#
# Four lines are new: make it, sample from it, add to it, and say when a task is over.


# %%
def with_memory(seed, k):
    trunk, net = network(seed)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    memory = odedm.DualMemory(
        capacity=100, k=k, seed=seed
    )  # 1: at most 100 rows, k of each class for good
    for classes in torch.arange(10).view(5, 2):
        for x, y in batches(classes):
            loss = nn.functional.cross_entropy(net(x), y)
            if len(memory):
                old = memory.sample(
                    16
                )  # 2: uniformly of both parts; sample(16, part="long") of one
                loss = loss + nn.functional.cross_entropy(
                    net(old["images"]), old["labels"]
                )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            memory.add(x, y)  # 3: every row once
        memory.end_task(
            classes, embed=trunk
        )  # 4: prototypes, chosen by your network's features
    return accuracy(net), memory


print(f"a plain reservoir: {with_memory(0, k=0)[0]:.1f} %")
score, memory = with_memory(0, k=6)
print(f"with prototypes:   {score:.1f} %")
memory

# %% [markdown]
# With `k=0` the memory is a plain reservoir, so the two can be compared in the same loop. One seed says little:

# %%
import matplotlib.pyplot as plt

pairs = [(with_memory(seed, 0)[0], with_memory(seed, 6)[0]) for seed in range(SEEDS)]
figure, axes = plt.subplots(figsize=(4.2, 3))
for plain, dual in pairs:
    axes.plot([0, 1], [plain, dual], "o-", color="#0072b2", alpha=0.7)
axes.set(xticks=[0, 1], xlim=(-0.3, 1.3), ylabel="accuracy at the end, %")
axes.set_xticklabels(["k=0: reservoir", "k=6: prototypes"])
plt.show()
print([f"{dual - plain:+.1f}" for plain, dual in pairs], "points, seed by seed")

# %% [markdown]
# Each line is one seed. On this small stream plain replay gains nothing from *which* rows are kept, as [forty seeds inside Avalanche and Mammoth](../appendix/integrations-measured.md) say too. Two things change that:
# a method that has little label replay of its own ([which ones](../explanation/where-it-pays.md)), and kinds that come once and then stay away, as in [the service](service.md). Here is what the memory holds, part by part:

# %%
print({part: memory.size(part) for part in ("short", "long")})
draw = memory.sample(8, part="long")
draw["images"].shape, draw["labels"]

# %% [markdown]
# ## Keep it with your own checkpoint
#
# `state_dict` is tensors and plain values; `save` and `load` use one safetensors file.

# %%
torch.save(memory.state_dict(), "memory.pt")
again = odedm.DualMemory(capacity=100, k=6, seed=0)
again.load_state_dict(torch.load("memory.pt"))
print(
    "the same rows:",
    torch.equal(again.rows("long")["images"], memory.rows("long")["images"]),
)

# %% [markdown]
# **Next**: [everything the memory can do](../how-to/memory-alone.md); further columns such as logits; streams without borders; [inside Avalanche and Mammoth](../how-to/integrations.md).
