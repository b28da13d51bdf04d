"""Every name a user can give, with one line each and where it lives; torch is imported only when one is loaded."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any

from odedm.core.errors import UsageError, short_repr


@dataclass(frozen=True)
class Entry:
    """What a name stands for.

    `target` is "module:attribute" below the package, `about` one line for lists, `title` how people write the name.
    `bound` marks a method that is no contender but what others are measured against.
    """

    target: str
    about: str
    title: str = ""
    bound: bool = False

    @property
    def import_path(self) -> str:
        """Return where it is imported from, "package.module:Name"."""
        return f"odedm.{self.target}"

    def load(self) -> Any:
        """Import the module and hand out the attribute.

        >>> Entry("core.errors:UsageError", "the error").load().__name__
        'UsageError'
        """
        return resolve_name(self.import_path)


class Registry(dict[str, Any]):
    """Names of one kind of part: an `Entry` each, or a line for what the package knows by its name.

    Args:
        group: what `odedm.register` calls it; entry points are in groups "odedm.methods", …
        what: one of its parts in words.
        needs: what a part from outside must be: a subclass of `base`, or anything that `has` these attributes.
        reserved: names that settings give a meaning of their own.
        adapt: makes of a part from outside what the package works with.
    """

    def __init__(
        self,
        group: str,
        what: str,
        needs: str,
        *,
        base: str = "",
        has: Sequence[str] = ("__call__",),
        reserved: Sequence[str] = (),
        adapt: str = "",
    ) -> None:
        super().__init__()
        self.group, self.what, self.needs = group, what, needs
        self.base, self.has, self.reserved, self.adapt = base, has, reserved, adapt

    def check(self, name: str, part: Any) -> Any:
        """Return what the package works with, made of a part from outside; refuse what is none of its kind."""
        if self.base:
            fits = isinstance(part, type) and issubclass(part, Entry(self.base, "").load())
        else:
            fits = all(hasattr(part, attribute) for attribute in self.has)
        if not fits:
            raise UsageError(f"The {self.what} '{name}' must be {self.needs}; {short_repr(part)} was given.")
        missing = sorted(getattr(part, "__abstractmethods__", ())) if isinstance(part, type) else []
        if missing:
            raise UsageError(f"The {self.what} '{name}' lacks {', '.join(missing)}, which every {self.what} defines.")
        return Entry(self.adapt, "").load()(part) if self.adapt else part


METHODS = Registry("methods", "method", "a subclass of odedm.Method", base="methods.base:Method")
METHODS |= {
    "er": Entry("methods.er:ER", "Experience replay: one cross-entropy over the stream batch and a replay draw.", "ER"),
    "der": Entry("methods.der:DER", "Dark experience replay: keeps the logits of stored rows where they were.", "DER"),
    "derpp": Entry(
        "methods.derpp:DERpp", "DER++: DER plus cross-entropy on a second, independent replay draw.", "DER++"
    ),
    "refresh": Entry(
        "methods.refresh:Refresh", "DER++refresh: DER++ after a small step of unlearning.", "DER++refresh"
    ),
    "fdr": Entry("methods.fdr:FDR", "Function distance: keeps the predictions on stored rows where they were.", "FDR"),
    "icarl": Entry("methods.icarl:ICarl", "iCaRL: distillation, herded exemplars, nearest mean of exemplars.", "iCaRL"),
    "puridiver": Entry(
        "methods.puridiver:PuriDivER", "PuriDivER: pure and diverse rows, for noisy labels.", "PuriDivER"
    ),
    "vrmcl": Entry("methods.vrmcl:VRMCL", "VR-MCL: meta-learning with a variance-reduced hypergradient.", "VR-MCL"),
    "pocl": Entry("methods.pocl:POCL", "POCL: hypergradients of past tasks in Pareto balance.", "POCL"),
    "er-ace": Entry(
        "methods.er_ace:ERACE", "ER-ACE: the stream's cross-entropy among its own batch's classes only.", "ER-ACE"
    ),
    "agem": Entry("methods.agem:AGEM", "A-GEM: no step against the mean gradient of a replay draw.", "A-GEM"),
    "gem": Entry("methods.gem:GEM", "GEM: no step against the gradient of any past task's stored rows.", "GEM"),
    "gss": Entry("methods.gss:GSS", "GSS: ER from stored rows whose gradients differ.", "GSS"),
    "gdumb": Entry(
        "methods.gdumb:GDumb", "GDumb: a fresh network fitted to a balanced memory before each test.", "GDumb"
    ),
    "aser": Entry("methods.aser:ASER", "ASER (ASER_μ): replays and keeps rows by mean Shapley values.", "ASER"),
    "cope": Entry("methods.cope:CoPE", "CoPE: prototypes that follow their classes, the nearest one answers.", "CoPE"),
    "mir": Entry("methods.mir:MIRReplay", "MIR: replays the rows that the coming update would hurt most.", "MIR"),
    "finetune": Entry(
        "methods.finetune:Finetune", "Finetuning on the stream, no memory: the lower bound.", "Finetune", bound=True
    ),
    "joint": Entry(
        "methods.joint:Joint", "All rows so far at once, as many updates: the upper bound.", "Joint", bound=True
    ),
    "scr": Entry("methods.scr:SCR", "SCR: supervised contrastive replay, prediction by the nearest class mean.", "SCR"),
    "onpro": Entry(
        "methods.onpro:OnPro",
        "OnPro: contrast of class prototypes, turned views, mixtures of confused classes.",
        "OnPro",
    ),
    "ncm": Entry("methods.ncm:NCM", "NCM: the nearest mean of all rows' features, no memory, no training.", "NCM"),
    "slda": Entry("methods.slda:SLDA", "SLDA: linear discriminant analysis of features, no memory.", "SLDA"),
    "ranpac": Entry("methods.ranpac:RanPAC", "RanPAC: ridge regression on random projections, no memory.", "RanPAC"),
}

MEMORIES = {
    "reservoir": Entry("memory.single_memory:Reservoir", "A uniform sample of the whole stream."),
    "native": Entry("memory.single_memory:Native", "The memory policy that the method was published with."),
    "odedm": Entry(
        "memory.settings:ODEDM", "The reservoir and a long-term memory of prototypes in one budget.", "ODEDM"
    ),
    "none": Entry("memory.single_memory:NoMemory", "No memory at all: finetuning on the stream.", "no memory"),
}

POLICIES = Registry(
    "policies", "memory policy", "a subclass of odedm.Memory", base="memory.buffer:Buffer", reserved=("native", "none")
)
POLICIES |= {
    "reservoir": Entry("memory.reservoir:ReservoirBuffer", "A uniform sample of the whole stream."),
    "task-quota": Entry(
        "memory.quota_buffers:TaskQuotaBuffer", "As many rows of every task, by a second visit when it ends (FDR)."
    ),
    "class-quota": Entry(
        "memory.quota_buffers:ClassQuotaBuffer", "As many random rows of every class, chosen when a task ends (GEM)."
    ),
    "herded": Entry("memory.herding:HerdingBuffer", "As many exemplars of every class, chosen by herding (iCaRL)."),
    "purity": Entry("memory.purity:PuriDivERBuffer", "Rows with small loss, unlike each other (PuriDivER)."),
    "balanced-reservoir": Entry(
        "memory.balanced_reservoir:CBRSBuffer", "As many rows of every class, each a uniform sample (CBRS)."
    ),
    "gss": Entry(
        "memory.gradient_diversity:GSSBuffer", "Rows whose gradients point elsewhere than those stored (GSS)."
    ),
    "greedy-balanced": Entry(
        "memory.greedy_balance:GDumbBuffer", "The first rows of every class, as many of each (GDumb)."
    ),
    "aser": Entry("memory.shapley:ASERBuffer", "Rows of the largest Shapley value for stored ones (ASER)."),
}
"""How short-term rows are chosen; a method's `native` is one of these."""

RETRIEVALS = Registry("retrievals", "retrieval", "a subclass of odedm.Retrieval", base="training.retrieval:Retrieval")
RETRIEVALS |= {
    "uniform": Entry("training.retrieval:Uniform", "Any stored rows, each equally likely."),
    "mir": Entry("training.retrieval:MIR", "Those whose loss the coming update would raise most.", "MIR"),
    "aser": Entry(
        "training.retrieval:ShapleyRetrieval", "Rows worth much to stored ones and little to the batch.", "ASER"
    ),
    "balanced": Entry("training.retrieval:Balanced", "As many rows of every class."),
}
"""Which stored rows a replay draw takes."""

DATASETS = Registry("data", "data set", "a function that gives an odedm.Dataset")
DATASETS |= {
    "fashion-mini": Entry("data.builtin:fashion_mini", "Fashion-MNIST subset, 300 + 100 a class, 28×28 (embedded)."),
    "fashion-mini-20": Entry("data.builtin:fashion_mini_20", "The same upright and lying, 20 classes in 10 tasks."),
    "fashion-mini-40": Entry("data.builtin:fashion_mini_40", "The same in four turns, 40 classes in 10 tasks."),
    "digits": Entry("data.builtin:digits", "scikit-learn's 8×8 digits, 10 classes (extra `digits`)."),
    "blobs": Entry("stream.synthetic:blobs", "Gaussian blobs in 16 dimensions, 10 classes (synthetic)."),
    "shapes": Entry("stream.synthetic:shapes", "Noisy 12×12 colour patterns, 6 classes (synthetic)."),
}

DISTANCES = Registry(
    "distances",
    "distance",
    "a class or an object with fit, pairwise and between_sets (see odedm.Distance)",
    has=("fit", "pairwise", "between_sets"),
)
DISTANCES |= {
    "sinkhorn": Entry(
        "selection.sinkhorn.transport:Sinkhorn", "Entropic optimal transport between feature histograms."
    ),
    "l2": Entry("selection.distance:L2", "Euclidean distance."),
    "l1": Entry("selection.distance:L1", "Sum of absolute differences."),
    "mmd": Entry("selection.distance:MMD", "Maximum mean discrepancy (Gaussian kernel) of a row to a cluster."),
    "herding": Entry("selection.row_selector:Herding", "No distance: rows whose mean is near the class's (iCaRL)."),
    "random": Entry("selection.row_selector:RandomRows", "No distance: any rows, the control without k-means or DAC."),
}
WITHOUT_CLUSTERS = ("random", "herding")
"""Names among the distances that choose rows without clusters, so that none can be compared by them."""

NETS = Registry(
    "nets",
    "net",
    "an nn.Module, a class of one, or a function that makes one",
    reserved=("auto",),
    adapt="nets.wrap:net_factory",
)
NETS |= {
    "linear": Entry("nets.small:Linear", "One linear layer, for vectors that are features already."),
    "mlp": Entry("nets.small:MLP", "Two hidden layers, for vectors."),
    "plain-cnn": Entry("nets.small:PlainCNN", "Two strided convolutions and a hidden layer, for small images."),
    "cnn": Entry("nets.small:SmallCNN", "Three convolutions and an average over places, for small images."),
    "resnet18": Entry("nets.resnet:ResNet18", "ResNet-18 with the CIFAR stem, width 64."),
    "resnet18-slim": Entry("nets.resnet:slim_resnet18", "The same at width 20, a tenth of the weights."),
    "vit": Entry("nets.vit:ViT", "Vision transformer (ViT-Tiny/16), for large images; reads weights from a file."),
}

TRANSFORMS = Registry("transforms", "transform", "a function of images [n, ...] and a generator")
TRANSFORMS |= {
    "data": "The data set's own training views: crops and mirror images where it says so.",
    "none": "Rows as they are, no training views.",
}


OPTIMIZERS = Registry("optimizers", "optimizer", "a function of parameters and keywords, or a class")
OPTIMIZERS |= {
    "sgd": "Stochastic gradient descent by the method's rate, momentum and weight decay.",
    "adam": "Adam by the method's rate and weight decay.",
    "adamw": "AdamW by the method's rate and weight decay.",
    "nadam": "Adam with Nesterov momentum.",
    "radam": "Rectified Adam.",
    "adamax": "Adam by the infinity norm.",
    "adadelta": "Adadelta.",
    "adagrad": "Adagrad; its steps run eagerly on a GPU.",
    "rmsprop": "RMSprop by the method's rate, momentum and weight decay.",
    "rprop": "Resilient backpropagation.",
    "asgd": "Averaged stochastic gradient descent.",
    "adafactor": "Adafactor; its steps run eagerly on a GPU.",
}
"""Optimizers of torch.optim by their names in lower case."""

SCHEDULES = Registry(
    "schedules",
    "schedule",
    "a function of a batch's number that gives a factor, or of an optimizer that gives one of torch's schedulers",
)
SCHEDULES |= {
    "constant": "The method's rate throughout.",
    "linear": "From the method's rate to 0 on a line.",
    "cosine": "From the method's rate to 0 on half a cosine.",
}
"""How the learning rate changes over the stream, or over each task."""


REGISTRIES: dict[str, Registry] = {
    registry.group: registry
    for registry in (METHODS, POLICIES, RETRIEVALS, DISTANCES, NETS, DATASETS, TRANSFORMS, OPTIMIZERS, SCHEDULES)
}
"""What plug-ins may add to."""

REFERENCE = Entry("paper.paper_reference:PaperReference", "The paper's numbers, beside which a report puts runs.")


LIBRARY_NET = re.compile(r"(timm|torchvision):[A-Za-z0-9_.]+")


@dataclass(frozen=True)
class LibraryNetEntry(Entry):
    """A net of another library, which is imported when a run needs it."""

    def load(self) -> Any:
        """Return what makes nets of it."""
        return super().load()(self.title)


def add_library_net(name: str) -> bool:
    """Return whether a name is that of a net in another library, which then stands among the nets.

    >>> add_library_net("resnet18"), add_library_net("timm:hf-hub:some/one")
    (False, False)
    """
    if LIBRARY_NET.fullmatch(name) is None:
        return False
    NETS[name] = LibraryNetEntry("nets.backbones:LibraryNet", f"A model of {name.partition(':')[0]}.", name)
    return True


def typed(table: Mapping[str, Any]) -> list[str]:
    """Return the names of a table that people type: objects without one of their own have a number, as in Mine@2.

    >>> typed({"er": 1, "mine.Mine@2": 2})
    ['er']
    """
    return [name for name in table if "@" not in name]


def title(table: Mapping[str, Any], name: str) -> str:
    """Return how people write a name; the name itself where nobody said.

    >>> title(METHODS, "derpp"), title(METHODS, "mine")
    ('DER++', 'mine')
    """
    entry = table.get(name)
    return entry.title if isinstance(entry, Entry) and entry.title else name


def normalize_name(name: str) -> str:
    """Return a name in letters and digits alone, so that every spelling of it is the same.

    >>> [normalize_name(name) for name in ("DER++", "derpp", "refresh", "DER++refresh", "Tiny-ImageNet")]
    ['derpp', 'derpp', 'derpprefresh', 'derpprefresh', 'tinyimagenet']
    """
    letters = name.lower().replace("+", "p").replace("-", "").replace("_", "")
    return {"refresh": "derpprefresh"}.get(letters, letters)
