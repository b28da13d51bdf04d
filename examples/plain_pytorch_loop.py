"""A PyTorch loop of one's own with odedm's memory: five tasks of two classes, each batch seen once."""

import torch
from torch import nn

import odedm

torch.manual_seed(0)
data = odedm.load_dataset("fashion-mini")
trunk = nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU())
net, cross_entropy = nn.Sequential(trunk, nn.Linear(128, 10)), nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
memory = odedm.DualMemory(capacity=100, k=6, seed=0)
for classes in torch.arange(10).view(5, 2):
    rows = torch.isin(data.label, classes).nonzero().flatten()
    for part in rows[torch.randperm(len(rows))].split(16):
        x, y = data.image[part] / 255, data.label[part]
        drawn = [memory.sample(16, part=name) for name in ("short", "long") if memory.size(name)]
        loss = sum((cross_entropy(net(old["images"]), old["labels"]) for old in drawn), cross_entropy(net(x), y))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        memory.add(x, y)
    memory.end_task(classes, embed=trunk)  # 6 prototypes of each class stay for good
print(f"{(net(data.test_image / 255).argmax(1) == data.test_label).float().mean():.1%} correct, {memory}")
