"""A vision transformer for large images, from scratch or from weights in a local file."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from odedm.core.errors import UsageError
from odedm.core.stored_names import stored
from odedm.nets.base import Net, channels, positive
from odedm.nets.weights_file import read_weights

EPSILON = 1e-6
"""LayerNorm's, as in published weights; torch's own default is ten times as much."""

PUBLISHED = (
    ("cls_token", "class_token"),
    ("pos_embed", "positions"),
    ("patch_embed.proj.", "patches."),
    (".attn.qkv.weight", ".attention.in_proj_weight"),
    (".attn.qkv.bias", ".attention.in_proj_bias"),
    (".attn.proj.", ".attention.out_proj."),
    (".mlp.fc1.", ".mlp.0."),
    (".mlp.fc2.", ".mlp.2."),
)
"""Parts of the names in which weights are commonly published (timm's layout), and what they are called here."""


@stored("net/vit")
@final
class ViT(Net):
    """Patches as tokens, a class token, learned positions, and `depth` pre-norm transformer blocks.

    The defaults are ViT-Tiny/16. Images whose sides are no multiples of `patch` are padded with zeros, the mean of
    normalised images, at the right and at the bottom. There is no dropout: every row of a stream comes once.
    `weights` names a safetensors file with a value for every parameter but, if need be, those of the head.

    >>> sum(p.numel() for p in ViT((3, 224, 224), 1000).parameters())
    5717416
    >>> ViT((1, 20, 30), 5, patch=8, depth=1, width=16, heads=2).features(torch.zeros(2, 1, 20, 30)).shape
    torch.Size([2, 16])
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        patch: int = 16,
        depth: int = 12,
        width: int = 192,
        heads: int = 3,
        weights: str = "",
    ) -> None:
        super().__init__()
        positive("vit", patch=patch, depth=depth, width=width, heads=heads)
        if width % heads:
            raise UsageError(
                f"The net option width of 'vit' must be a multiple of heads; {width} and {heads} were given."
            )
        self.classes, self.patch = classes, patch
        # linear, not a convolution: a method that draws convolutions anew must leave loaded weights whole
        self.patches = nn.Linear(channels(shape, "vit") * patch**2, width)
        places = -(-shape[1] // patch) * -(-shape[2] // patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.zeros(1, 1 + places, width))
        self.blocks = nn.Sequential(*[Block(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width, eps=EPSILON)
        self.head = nn.Linear(width, classes)
        nn.init.trunc_normal_(self.class_token, std=0.02)
        nn.init.trunc_normal_(self.positions, std=0.02)
        if weights:
            read_weights(self, weights, renamed=PUBLISHED, flattened=("patches.weight",))

    def backbone(self, x: Tensor) -> Tensor:
        """Return the class token after the last block [n, width]."""
        token: Tensor = self.patches(tokens(x, self.patch))
        token = torch.cat([self.class_token.expand(len(x), -1, -1), token], 1) + self.positions
        last: Tensor = self.norm(self.blocks(token)[:, 0])
        return last


@stored("net/vit-block")
@final
class Block(nn.Module):
    """Attention among tokens, then two layers for each token; both normalise first and add to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=EPSILON), nn.LayerNorm(width, eps=EPSILON)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return tokens [n, t, width] of tokens [n, t, width]."""
        y = self.norm1(x)
        # asking for the attention itself keeps torch from its fused kernels, which have no second derivative and no
        # batching rule, and cost as much at this length: meta-learning and gradients of single rows need both
        x = x + self.attention(y, y, y, need_weights=True, average_attn_weights=False)[0]
        result: Tensor = x + self.mlp(self.norm2(x))
        return result


def tokens(x: Tensor, patch: int) -> Tensor:
    """Cut images [n, c, h, w] into squares, row by row: [n, squares, c · patch²], zeros where the last ones reach out.

    >>> tokens(torch.arange(8.0).view(1, 1, 2, 4), 2)
    tensor([[[0., 1., 4., 5.],
             [2., 3., 6., 7.]]])
    """
    x = F.pad(x, (0, -x.shape[3] % patch, 0, -x.shape[2] % patch))
    n, c, h, w = x.shape
    squares = x.view(n, c, h // patch, patch, w // patch, patch).permute(0, 2, 4, 1, 3, 5)
    return squares.flatten(3).flatten(1, 2)
