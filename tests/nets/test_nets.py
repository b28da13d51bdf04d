"""What every network promises, the published sizes, and weights from files of every kind."""

import json
import logging
import os
import re
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional as F

from odedm import UsageError, shapes, split
from odedm.core.registry import METHODS, NETS
from odedm.methods.meta_learning import NetFunction, Objective, hypergradient
from odedm.methods.puridiver import rebuild
from odedm.methods.refresh import fisher_information
from odedm.nets.build import build, configure, options, pick
from odedm.nets.resnet import ResNet18, slim_resnet18
from odedm.nets.small import MLP, SmallCNN
from odedm.nets.vit import Block, ViT, tokens
from odedm.nets.weights_file import rename

sys.path.insert(0, str(Path(__file__).parents[1] / "methods"))
from sampling import QUICK
from workbench import CLASSES, SHAPE, Bench, batch_of, task_of

SMALL = {"patch": 4, "depth": 2, "width": 12, "heads": 3}


def vit(shape=SHAPE, classes=CLASSES, seed=0, **over):
    """A small vision transformer, the same every time."""
    return build("vit", shape, classes, seed=seed, options=SMALL | over)


def size(net):
    return sum(weight.numel() for weight in net.parameters())


# -- sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "counts"),
    [(ResNet18, (11_173_962, 11_220_132, 11_271_432)), (slim_resnet18, (1_094_750, 1_109_240, 1_125_340))],
)
def test_resnet18_has_the_published_number_of_weights(kind, counts):
    for classes, count in zip((10, 100, 200), counts, strict=True):
        with torch.device("meta"):
            net = kind((3, 32, 32), classes)
            assert net(torch.zeros(2, 3, 64, 64)).shape == (2, classes)
        assert size(net) == count
    assert len(list(net.parameters())) == 62
    assert sum(isinstance(module, nn.BatchNorm2d) for module in net.modules()) == 20


def test_the_default_transformer_is_vit_tiny_with_patches_of_16():
    with torch.device("meta"):
        net = ViT((3, 224, 224), 1000)
        assert net.features(torch.zeros(2, 3, 224, 224)).shape == (2, 192)
    assert size(net) == 5_717_416
    assert net.positions.shape == (1, 197, 192)


# -- promises of every net --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETS)
def test_every_net_is_decided_by_its_seed_alone_and_has_features_and_a_linear_head(name):
    shape = (7,) if name == "mlp" else (3, 20, 24)
    given = {"vit": SMALL, "linear": {}}.get(name, {"width": 6})
    before = torch.get_rng_state()
    net, other = (build(name, shape, 5, seed=seed, options=given) for seed in (0, 1))
    assert torch.get_rng_state().equal(before), "no draw from anybody else's generator"
    torch.manual_seed(99)
    again = build(name, shape, 5, seed=0, options=given).state_dict()
    assert all(again[key].equal(value) for key, value in net.state_dict().items())
    assert not net.head_weight().equal(other.head_weight())
    x = torch.randn(4, *shape)
    net.eval()
    feature = net.features(x)
    assert net.classes == 5
    assert net.head_weight().shape == (5, feature.shape[1])
    torch.testing.assert_close(net(x), feature @ net.head_weight().T + net.head.bias)
    assert not net(x[:1]).equal(net(x[1:2])), "the input matters"


@pytest.mark.parametrize("name", NETS)
def test_no_module_and_no_weight_has_two_names(name):
    with torch.device("meta"):
        net = NETS[name].load()((3, 32, 32), 10)
    modules = [module for _, module in net.named_modules(remove_duplicate=False)]
    weights = [weight for _, weight in net.named_parameters(remove_duplicate=False)]
    assert len({id(each) for each in modules}) == len(modules)
    assert len({id(each) for each in weights}) == len(weights)


@pytest.mark.parametrize(
    ("shape", "name"),
    {
        (16,): "mlp",
        (1, 8, 8): "cnn",
        (3, 15, 400): "cnn",
        (1, 16, 16): "plain-cnn",
        (3, 31, 500): "plain-cnn",
        (3, 32, 32): "resnet18",
        (3, 64, 64): "resnet18",
        (3, 127, 300): "resnet18",
        (3, 128, 128): "vit",
        (1, 224, 224): "vit",
        (3, 375, 500): "vit",
    }.items(),
)
def test_auto_goes_by_the_shorter_side(shape, name):
    assert pick("auto", shape) == name
    configure(name, shape, 10, {})
    assert pick("mlp", shape) == "mlp", "a wish is a wish"


# -- options ----------------------------------------------------------------------------------------------------------


def test_options_are_the_constructors_keywords_in_their_type():
    assert {name: options(name) for name in NETS} == {
        "linear": {},
        "mlp": {"width": 64},
        "plain-cnn": {"width": 16, "hidden": 64},
        "cnn": {"width": 16},
        "resnet18": {"width": 64},
        "resnet18-slim": {"width": 20},
        "vit": {"patch": 16, "depth": 12, "width": 192, "heads": 3, "weights": ""},
    }
    assert configure("cnn", SHAPE, 4, {"width": "8"}) == {"width": 8}
    net = vit(**configure("vit", SHAPE, CLASSES, SMALL | {"depth": "3"}))
    assert len(net.blocks) == 3
    assert net.head_weight().shape == (CLASSES, 12)


@pytest.mark.parametrize(
    ("name", "shape", "given", "message"),
    [
        ("vit", SHAPE, {"dept": 3}, "Unknown option of the net 'vit' 'dept': did you mean 'depth'"),
        ("mlp", (4,), {"depth": 3}, "Unknown option of the net 'mlp' 'depth'.*Known: width"),
        ("vit", SHAPE, {"depth": "many"}, "depth of 'vit' must be a whole number; 'many' was given"),
        ("vit", SHAPE, {"depth": 2.5}, "depth of 'vit' must be a whole number; 2.5 was given"),
        ("vit", SHAPE, {"depth": None}, "depth of 'vit' must be a whole number; None was given"),
        ("vit", SHAPE, {"depth": 0}, "depth of 'vit' must be a whole number, 1 or more, up to 16777216; 0 was given"),
        ("vit", SHAPE, {"patch": -1}, "patch of 'vit' must be a whole number, 1 or more, up to 16777216; -1 was given"),
        ("vit", SHAPE, {"width": 64}, "width of 'vit' must be a multiple of heads; 64 and 3 were given"),
        (
            "resnet18-slim",
            SHAPE,
            {"width": 0},
            "width of 'resnet18' must be a whole number, 1 or more, up to 16777216; 0 was given",
        ),
        ("cnn", SHAPE, {"width": 0}, "width of 'cnn' must be a whole number, 1 or more, up to 16777216; 0 was given"),
        ("mlp", SHAPE, {"width": 0}, "width of 'mlp' must be a whole number, 1 or more, up to 16777216; 0 was given"),
        ("vit", (16,), {}, r"'vit' is for images; these rows are vectors of shape \(16,\). Use the net 'mlp' .--net"),
        ("resnet18", (16,), {}, "'resnet18' is for images"),
        ("cnn", (16,), {}, "'cnn' is for images"),
        ("resnet", SHAPE, {}, "did you mean 'resnet18'"),
    ],
)
def test_what_no_net_can_be_is_refused(name, shape, given, message):
    with pytest.raises(UsageError, match=message):
        configure(name, shape, 4, given)


# -- the vision transformer -------------------------------------------------------------------------------------------


def test_tokens_are_what_unfold_cuts_and_zeros_beyond_the_border():
    x = torch.randn(2, 3, 8, 12)
    assert tokens(x, 4).equal(F.unfold(x, 4, stride=4).transpose(1, 2))
    padded = F.pad(x[..., :6, :9], (0, 3, 0, 2))
    assert tokens(x[..., :6, :9], 4).equal(tokens(padded, 4))
    assert ViT((3, 6, 9), 2, **SMALL).positions.shape == (1, 1 + 2 * 3, 12)


def test_a_block_is_torchs_pre_norm_encoder_layer():
    block = Block(12, 3)
    layer = nn.TransformerEncoderLayer(12, 3, 48, 0.0, "gelu", 1e-6, batch_first=True, norm_first=True)
    names = (("self_attn.", "attention."), ("linear1.", "mlp.0."), ("linear2.", "mlp.2."))
    own = {name: torch.randn_like(value) for name, value in block.state_dict().items()}
    block.load_state_dict(own)
    layer.load_state_dict(
        {name: own[name.replace(*next((p for p in names if p[0] in name), ("", "")))] for name in layer.state_dict()}
    )
    x = torch.randn(2, 5, 12)
    for training in (True, False):
        torch.testing.assert_close(block.train(training)(x), layer.train(training)(x), rtol=1e-4, atol=1e-4)


def test_blocks_start_apart_and_places_matter():
    net = vit().double()
    first, second = (block.attention.in_proj_weight for block in net.blocks)
    assert not first.equal(second)
    assert net.class_token.std() > 0
    x = torch.randn(1, *SHAPE, dtype=torch.float64)
    assert not torch.allclose(net(x), net(x.flip(2))), "a net without positions could not tell"


def test_the_transformer_is_the_same_in_both_modes_and_for_one_row_alone():
    net, x = vit(), torch.randn(5, *SHAPE)
    with torch.no_grad():
        torch.testing.assert_close(net.train()(x), net.eval()(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(net(x)[2:3], net(x[2:3]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_gradients_of_single_rows_are_those_of_a_loop(training):
    net, batch = vit().double(), batch_of(3)
    fisher = fisher_information(net, [(batch["input"], batch["label"])], total=6, training=training)
    expected = {name: torch.zeros_like(weight) for name, weight in net.named_parameters()}
    for x, y in zip(batch["input"], batch["label"], strict=True):
        net.zero_grad()
        log_p = -F.cross_entropy(net(x[None]), y[None])
        log_p.backward()
        for name, weight in net.named_parameters():
            expected[name] += log_p.exp().detach() * weight.grad**2 / 6
    for name, value in fisher.items():
        torch.testing.assert_close(value, expected[name], rtol=1e-8, atol=1e-14)


def test_the_second_derivative_is_that_of_differences():
    function, batch = NetFunction(vit().double()), batch_of(4)
    whole = torch.full((6,), 1 / 6, dtype=torch.float64)
    goal = Objective(batch["input"], batch["label"], whole, 0, CLASSES)
    weights = function.weights()
    found = hypergradient(function, weights, 0.3, [goal], goal, clip=1e9)
    direction = torch.randn(len(weights), dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    direction /= direction.norm()
    step = 1e-5

    def loss(at):
        at = at.detach().requires_grad_()
        (slope,) = torch.autograd.grad(goal.loss(function(at, goal.input)), at)
        return goal.loss(function(at - 0.3 * slope, goal.input)).detach()

    difference = (loss(weights + step * direction) - loss(weights - step * direction)) / (2 * step)
    torch.testing.assert_close(found.by_weights @ direction, difference, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("method", [name for name in METHODS if METHODS[name].load().scales_rows])
def test_every_method_trains_the_transformer(method):
    bench = Bench(METHODS[method].load(), net=vit().double(), **QUICK.get(method, {}))
    before = bench.state()
    for index in range(2):
        task = task_of(index)
        bench.method.begin_task(task)
        for seed in range(3):
            bench.step(batch_of(10 * index + seed, classes=task.classes))
        bench.end_task(task)
    after = bench.state()
    assert all(value.isfinite().all() for value in after.values())
    assert not after["blocks.0.attention.in_proj_weight"].equal(before["blocks.0.attention.in_proj_weight"])
    assert bench.method.predict(batch_of(0)["input"]).shape == (6, CLASSES)


def test_the_transformer_learns():
    data = shapes(per_class=40)
    stream = split(data, tasks=1)
    net = build("vit", data.shape, data.classes, seed=0, options=SMALL | {"width": 24})
    optimizer, rows = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9), stream.tasks[0].rows
    for _ in range(10):
        for image, label in zip(rows["image"].split(16), rows["label"].split(16), strict=True):
            optimizer.zero_grad()
            F.cross_entropy(net(stream.transform.normalize(image)), label).backward()
            optimizer.step()
    test = stream.tests[0]
    right = net(stream.transform.normalize(test["image"])).argmax(1) == test["label"]
    assert right.float().mean() > 0.8, "chance is one in six"


# -- weights from a file ----------------------------------------------------------------------------------------------


def published(net):
    """A net's weights under the names and in the shapes in which such weights are commonly published."""
    names = (
        ("class_token", "cls_token"),
        ("positions", "pos_embed"),
        ("patches.", "patch_embed.proj."),
        ("attention.in_proj_", "attn.qkv."),
        ("attention.out_proj.", "attn.proj."),
        ("mlp.0.", "mlp.fc1."),
        ("mlp.2.", "mlp.fc2."),
    )
    result = {rename(name, names): value.clone() for name, value in net.state_dict().items()}
    patch = result["patch_embed.proj.weight"]
    result["patch_embed.proj.weight"] = patch.view(len(patch), -1, net.patch, net.patch)
    return result


def published_logits(w, x, heads, depth):
    """The logits by the published weights alone: a convolution over patches, and attention written out."""

    def norm(name, x):
        return F.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], 1e-6)

    def linear(name, x):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    patch = w["patch_embed.proj.weight"]
    x = F.conv2d(x, patch, w["patch_embed.proj.bias"], stride=patch.shape[-1]).flatten(2).transpose(1, 2)
    x = torch.cat([w["cls_token"].expand(len(x), 1, -1), x], 1) + w["pos_embed"]
    for i in range(depth):
        n, t, d = x.shape
        q, k, v = linear(f"blocks.{i}.attn.qkv", norm(f"blocks.{i}.norm1", x)).view(n, t, 3, heads, -1).unbind(2)
        a = torch.einsum("nihd,njhd->nhij", q, k).div((d // heads) ** 0.5).softmax(-1)
        x = x + linear(f"blocks.{i}.attn.proj", torch.einsum("nhij,njhd->nihd", a, v).reshape(n, t, d))
        x = x + linear(f"blocks.{i}.mlp.fc2", F.gelu(linear(f"blocks.{i}.mlp.fc1", norm(f"blocks.{i}.norm2", x))))
    return linear("head", norm("norm", x)[:, 0])


@pytest.fixture
def file(tmp_path):
    """Writes tensors into a file and says where."""

    def write(tensors, name="weights.safetensors"):
        save_file({key: value.contiguous() for key, value in tensors.items()}, tmp_path / name)
        return str(tmp_path / name)

    return write


def same(net, other, but=()):
    theirs = other.state_dict()
    return all(value.equal(theirs[name]) for name, value in net.state_dict().items() if name not in but)


HEAD = ("head.weight", "head.bias")


def test_published_weights_compute_what_they_were_published_for(file):
    source = vit(seed=5)
    weights = {name: torch.randn_like(value) * 0.3 for name, value in published(source).items()}
    net = vit(seed=0, weights=file(weights))
    x = torch.randn(4, *SHAPE)
    torch.testing.assert_close(net(x), published_logits(weights, x, 3, 2), rtol=1e-4, atol=1e-4)


def test_weights_under_our_own_names_come_back_bit_for_bit(file):
    source = vit(seed=5)
    assert same(vit(seed=0, weights=file(source.state_dict())), source)
    assert not same(vit(seed=0), source)
    doubled = vit(seed=5).double()
    assert same(vit(seed=0, weights=file(doubled.state_dict())), source), "in the net's own precision"
    half = vit(seed=0, weights=file(vit(seed=5).half().state_dict()))
    assert half.positions.dtype == torch.float32
    torch.testing.assert_close(half.positions, source.positions, rtol=1e-3, atol=1e-5)


def test_without_a_head_the_head_starts_fresh(file, caplog):
    source = published(vit(seed=5))
    for name in HEAD:
        del source[name]
    fresh = vit(seed=0)
    with caplog.at_level(logging.INFO):
        net = vit(seed=0, weights=file(source))
    assert "it starts fresh" in caplog.text
    assert same(net, vit(seed=5), but=HEAD)
    assert net.head.weight.equal(fresh.head.weight), "and the seed decides it"


@pytest.mark.parametrize("lost", [(), HEAD[:1], HEAD[1:]])
def test_a_head_for_other_classes_or_half_a_head_starts_fresh_whole(file, lost):
    source = vit(seed=5, classes=CLASSES if lost else 1000).state_dict()
    for name in lost:
        del source[name]
    net = vit(seed=0, weights=file(source))
    assert net.head.weight.equal(vit(seed=0).head.weight)
    assert net.head.bias.equal(vit(seed=0).head.bias)
    assert net.norm.weight.equal(source["norm.weight"])


def spoil(kind):
    """Weights that do not fit, and what is said of them."""
    good = vit(seed=5).state_dict()
    if kind == "missing":
        del good["blocks.1.norm2.bias"]
        return good, "lacks blocks.1.norm2.bias"
    if kind == "deeper here":
        return vit(depth=1).state_dict(), r"lacks blocks.1.norm1.weight, .* and 9 more\. Set the net's options"
    if kind == "deeper there":
        return vit(depth=3).state_dict(), "has blocks.2.*, which this net has not, .* and 9 more"
    if kind == "foreign":
        return good | {"fc_norm.weight": torch.ones(12)}, "has fc_norm.weight, which this net has not"
    if kind == "another net":
        return SmallCNN(SHAPE, CLASSES).state_dict(), "lacks class_token, lacks positions"
    if kind == "nothing":
        return {}, "lacks class_token"
    if kind == "width":
        return vit(width=24).state_dict(), r"class_token as \[1, 1, 24\], and here it is \[1, 1, 12\].* more\."
    if kind == "size":
        return vit((1, 12, 12)).state_dict(), r"positions as \[1, 10, 12\], and here it is \[1, 5, 12\]\. Set"
    if kind == "channels":
        return vit((3, 8, 8)).state_dict(), r"patches.weight as \[12, 48\], and here it is \[12, 16\]"
    if kind == "scalar":
        return good | {"patches.weight": torch.tensor(1.0)}, r"patches.weight as \[\], and"
    if kind == "nan":
        good["norm.bias"][3] = torch.nan
        return good, "NaN, infinite values, whole numbers or such beyond torch.float32 in norm.bias"
    if kind == "beyond float32":
        return good | {"norm.bias": torch.full((12,), 1e300, dtype=torch.float64)}, "beyond torch.float32 in norm.bias"
    return good | {"norm.bias": torch.ones(12, dtype=torch.int64)}, "whole numbers .* in norm.bias"


def test_weights_in_a_pipe_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="Cannot read weights"):
        vit(weights=str(tmp_path / "pipe"))


@pytest.mark.parametrize(
    "kind",
    ["missing", "deeper here", "deeper there", "foreign", "another net", "nothing", "width", "size", "channels",
     "scalar", "nan", "beyond float32", "whole numbers"],
)  # fmt: skip
def test_weights_that_do_not_fit_are_refused_by_name(file, kind):
    tensors, message = spoil(kind)
    path = file(tensors)
    with pytest.raises(UsageError, match=message) as caught:
        vit(weights=path)
    assert path in str(caught.value)
    wish = SMALL | {"weights": path}
    if kind in ("nan", "beyond float32", "whole numbers"):
        assert configure("vit", SHAPE, CLASSES, wish) == wish, "a check reads names and shapes, no values"
        return
    with pytest.raises(UsageError, match=message):
        configure("vit", SHAPE, CLASSES, wish)


@pytest.mark.parametrize("kind", ["absent", "folder", "empty", "cut", "pickle", "text", "header", "bomb"])
def test_files_that_are_no_weights_are_refused(tmp_path, file, kind):
    path = tmp_path / "weights.safetensors"
    if kind == "folder":
        path.mkdir()
    elif kind == "cut":
        whole = Path(file(vit().state_dict()))
        whole.write_bytes(whole.read_bytes()[:-100])
    elif kind == "pickle":
        torch.save(vit().state_dict(), path)
    elif kind in ("header", "bomb"):
        shape, end = ([4, 4], 4) if kind == "header" else ([2**40, 2**20], 2**62)
        header = json.dumps({"norm.bias": {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}}).encode()
        path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    elif kind != "absent":
        path.write_bytes({"empty": b"", "text": b"no weights at all"}[kind])
    reason = {"absent": "there is no such file", "folder": "it is a folder"}.get(kind, ".+")
    with pytest.raises(UsageError, match=rf"Cannot read weights from '{re.escape(str(path))}': {reason}\. Give a"):
        vit(weights=str(path))


def test_loaded_weights_are_a_copy_and_no_view_of_the_file(file):
    path = file(vit(seed=5).state_dict())
    net = vit(weights=path)
    Path(path).write_bytes(bytes(Path(path).stat().st_size))
    assert same(net, vit(seed=5))


def test_puridivers_start_leaves_loaded_weights_whole(file):
    net = vit(seed=0, weights=file(vit(seed=5).state_dict()))
    rebuild(net, seed=1)
    assert net.patches.weight.equal(vit(seed=5).patches.weight)
    assert net.head_weight().equal(vit(seed=5).head.weight)


def test_small_nets_take_any_image():
    assert MLP((3, 5, 7), 4)(torch.zeros(2, 3, 5, 7)).shape == (2, 4)
    assert SmallCNN((2, 5, 7), 4)(torch.zeros(2, 2, 5, 7)).shape == (2, 4)
    assert ViT((2, 5, 7), 4, **SMALL)(torch.zeros(2, 2, 5, 7)).shape == (2, 4)


@pytest.mark.parametrize("name", ["cnn", "resnet18-slim"])
def test_a_single_row_whose_maps_have_shrunk_to_one_place_can_be_trained_on(name):
    net = build(name, (1, 4, 4), 3, seed=0).train()
    before = {key: value.clone() for key, value in net.state_dict().items() if "running" in key}
    net(torch.randn(1, 1, 4, 4)).sum().backward()
    assert all(weight.grad.isfinite().all() for weight in net.parameters())
    assert set(before) <= set(net.state_dict())


def test_building_a_net_leaves_every_generator_of_the_caller_alone():
    torch.manual_seed(7)
    state = torch.get_rng_state()
    build("mlp", (4,), 3, seed=0)
    assert torch.get_rng_state().equal(state)
    assert torch.initial_seed() == 7
