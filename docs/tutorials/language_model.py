# %% [markdown]
# # A language model that keeps its first language
#
# You will train a small character-level language model on one kind of text, then on another, and see what replay saves of the first. The memory is `odedm.DualMemory`, and `odedm.ReplayStream` mixes its rows into an ordinary DataLoader, so the training loop need not change. The same two lines work for fine-tuning a large model with any trainer ([the memory alone](../how-to/memory-alone.md#in-a-dataloader)).

# %%
import random

import matplotlib.pyplot as plt
import torch
from torch import nn
from torch.utils.data import DataLoader

import odedm

SEEDS = 3
# so small a network is quickest on one core
torch.set_num_threads(1)

# %% [markdown]
# ## Two kinds of text
#
# Sums, and sentences. A row is 24 characters as whole numbers; its label says which kind of text it is.

# %%
ALPHABET = " abcdefghijklmnopqrstuvwxyz0123456789+=."
LENGTH = 24


def sums(draw):
    a, b = draw.randrange(100), draw.randrange(100)
    return f"{a}+{b}={a + b}. "


def sentences(draw):
    subject, verb = draw.choice(["the cat", "a dog", "our bird"]), draw.choice(["sees", "likes", "finds"])
    return f"{subject} {verb} {draw.choice(['the fish', 'a tree', 'my house', 'the rain'])}. "


def rows(write, count, seed):
    draw = random.Random(seed)
    text = ""
    while len(text) < count * LENGTH:
        text += write(draw)
    numbers = torch.tensor([ALPHABET.index(letter) for letter in text[: count * LENGTH]])
    return numbers.view(count, LENGTH)


KINDS = [sums, sentences]
training = [rows(write, 3000, seed=1) for write in KINDS]
held_out = [rows(write, 200, seed=2) for write in KINDS]
print("".join(ALPHABET[number] for number in training[0][0]), "|", "".join(ALPHABET[number] for number in training[1][0]))

# %% [markdown]
# ## The model and its loop
#
# A recurrent network that predicts the next character. The loop takes batches from a loader and knows nothing of memories.


# %%
class Characters(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(len(ALPHABET), 32)
        self.recurrent = nn.GRU(32, 96, batch_first=True)
        self.head = nn.Linear(96, len(ALPHABET))

    def forward(self, x):
        return self.head(self.recurrent(self.embed(x))[0])


def loss_of(net, x):
    logits = net(x[:, :-1])
    return nn.functional.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten())


def train(net, loader, optimizer):
    for x, _ in loader:
        loss = loss_of(net, x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def losses(net):
    with torch.no_grad():
        return [loss_of(net, x).item() for x in held_out]


# %% [markdown]
# ## With replay, and without
#
# Before the second kind of text, rows of the first go into a memory of 100 rows. `ReplayStream` then shows one of them after every second new row. `ratio=0` is the same loop without replay.


# %%
def run(seed, ratio):
    torch.manual_seed(seed)
    net, memory = Characters(), odedm.DualMemory(capacity=100, k=0, seed=seed)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.003)
    after = []
    for kind, x in enumerate(training):
        new = [(row, kind) for row in x]
        stream = odedm.ReplayStream(new, memory, ratio=ratio, shuffle=True, seed=seed)
        train(net, DataLoader(stream, batch_size=32), optimizer)
        memory.add(x, torch.full((len(x),), kind))
        after.append(losses(net))
    return after


results = {ratio: torch.tensor([run(seed, ratio) for seed in range(SEEDS)]) for ratio in (0.0, 0.5)}
for ratio, values in results.items():
    first, second = values.mean(0).tolist()
    print(f"ratio {ratio}: loss on sums {first[0]:.2f} after sums, {second[0]:.2f} after sentences; on sentences {second[1]:.2f}")

# %%
figure, axis = plt.subplots(figsize=(6, 3))
for offset, (ratio, values) in enumerate(results.items()):
    means = values[:, 1].mean(0).tolist()
    places = [kind + 0.35 * offset for kind in range(2)]
    axis.bar(places, means, width=0.3, label="with replay" if ratio else "without replay")
axis.set_xticks([0.17, 1.17], ["sums (first)", "sentences (second)"])
axis.set_ylabel("held-out loss after both")
axis.legend()
plt.show()

# %% [markdown]
# Without replay the model loses the sums: their loss is higher than that of guessing (3.7). With a hundred stored rows it keeps them, and learns the sentences as well. (Replay also means half again as many updates in the second part.)
#
# For a service that learns without an end, add rows to the memory as they come and begin a new epoch of the stream now and then: an epoch draws from the memory as it is when the epoch begins.
