"""Networks: features and a linear head with one output for every class of the whole stream."""

from odedm.nets.base import GroupedNorm, Net, evaluating
from odedm.nets.choice import build, configure, options, pick
from odedm.nets.resnet import ResNet18, slim_resnet18
from odedm.nets.small import MLP, SmallCNN
from odedm.nets.vit import ViT

__all__ = [
    "MLP",
    "GroupedNorm",
    "Net",
    "ResNet18",
    "SmallCNN",
    "ViT",
    "build",
    "configure",
    "evaluating",
    "options",
    "pick",
    "slim_resnet18",
]
