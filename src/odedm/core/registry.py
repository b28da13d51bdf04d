"""Every name a user can give, with one line each and where it lives; torch is imported only when one is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any


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


METHODS = {
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
}

MEMORIES = {
    "reservoir": Entry("memory.single_memory:Reservoir", "A uniform sample of the whole stream."),
    "native": Entry("memory.single_memory:Native", "The memory policy that the method was published with."),
    "odedm": Entry(
        "memory.settings:ODEDM", "The reservoir and a long-term memory of prototypes in one budget.", "ODEDM"
    ),
    "none": Entry("memory.single_memory:NoMemory", "No memory at all: finetuning on the stream.", "no memory"),
}

POLICIES = {
    "reservoir": Entry("memory.reservoir:ReservoirMemory", "A uniform sample of the whole stream."),
    "task-quota": Entry("memory.quota:TaskQuota", "As many rows of every task, by a second visit when it ends (FDR)."),
    "class-quota": Entry(
        "memory.quota:ClassQuota", "As many random rows of every class, chosen when a task ends (GEM)."
    ),
    "herded": Entry("memory.herding:HerdedQuota", "As many exemplars of every class, chosen by herding (iCaRL)."),
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

RETRIEVALS = {
    "uniform": Entry("training.retrieval:Uniform", "Any stored rows, each equally likely."),
    "mir": Entry("training.retrieval:MIR", "Those whose loss the coming update would raise most.", "MIR"),
    "aser": Entry(
        "training.shapley_retrieval:ShapleyRetrieval", "Rows worth much to stored ones and little to the batch.", "ASER"
    ),
    "balanced": Entry("training.retrieval:Balanced", "As many rows of every class."),
}
"""Which stored rows a replay draw takes."""

DATASETS = {
    "fashion-mini": Entry("data.builtin:fashion_mini", "Fashion-MNIST subset, 300 + 100 a class, 28×28 (embedded)."),
    "fashion-mini-20": Entry("data.builtin:fashion_mini_20", "The same upright and lying, 20 classes in 10 tasks."),
    "fashion-mini-40": Entry("data.builtin:fashion_mini_40", "The same in four turns, 40 classes in 10 tasks."),
    "digits": Entry("data.builtin:digits", "scikit-learn's 8×8 digits, 10 classes (extra `digits`)."),
    "blobs": Entry("stream.synthetic:blobs", "Gaussian blobs in 16 dimensions, 10 classes (synthetic)."),
    "shapes": Entry("stream.synthetic:shapes", "Noisy 12×12 colour patterns, 6 classes (synthetic)."),
}

DISTANCES = {
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

NETS = {
    "mlp": Entry("nets.small:MLP", "Two hidden layers, for vectors."),
    "plain-cnn": Entry("nets.small:PlainCNN", "Two strided convolutions and a hidden layer, for small images."),
    "cnn": Entry("nets.small:SmallCNN", "Three convolutions and an average over places, for small images."),
    "resnet18": Entry("nets.resnet:ResNet18", "ResNet-18 with the CIFAR stem, width 64."),
    "resnet18-slim": Entry("nets.resnet:slim_resnet18", "The same at width 20, a tenth of the weights."),
    "vit": Entry("nets.vit:ViT", "Vision transformer (ViT-Tiny/16), for large images; reads weights from a file."),
}

TRANSFORMS: dict[str, Any] = {
    "data": "The data set's own training views: crops and mirror images where it says so.",
    "none": "Rows as they are, no training views.",
}

STREAM_LOSSES = {
    "plain": "The cross-entropy among all classes.",
    "asymmetric": "Among all but classes that were here before and are in no recent batch: replay alone moves those.",
    "adjusted": "Logits plus the logarithm of each class's running frequency in the stream.",
}
"""What the stream's own rows are trained by."""

PREDICTIONS = {
    "head": "The network's linear head.",
    "nearest-mean": "The nearest class mean of the memory's features, taken anew at every evaluation.",
}

VIEWS = {
    "crop": "Replayed rows in the training views of the stream.",
    "strong": "Replayed rows under AutoAugment's CIFAR-10 policy as well.",
    "rotations": "Crop, and a further term: which of four turns stream and replayed images were given.",
    "turned-classes": "Crop, and a further term: which class they are of, in which of four turns.",
    "strong-turned": "Both: replayed rows under the policy, and the term of turned classes.",
}
STRONG_VIEWS = ("strong", "strong-turned")
"""Those for which replayed rows go through AutoAugment's policy."""

OPTIMIZERS: dict[str, Any] = {
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

SCHEDULES: dict[str, Any] = {
    "constant": "The method's rate throughout.",
    "linear": "From the method's rate to 0 on a line.",
    "cosine": "From the method's rate to 0 on half a cosine.",
}
"""How the learning rate changes over the stream, or over each task."""

SCHEDULE_SPANS = {
    "stream": "Once over the whole stream.",
    "task": "Anew in each task.",
}

IMBALANCES = {
    "standard": "All training rows.",
    "imbalanced": "Even-numbered classes lose the rows at even positions, so they keep half.",
    "imbalanced-all": "Every class loses the rows at even positions (the paper's other reading; stays balanced).",
    "long-tail": "Class i keeps a share that falls geometrically to 1/factor (--set stream.factor).",
}

DOMAINS = {
    "same": "Every task has all classes and other rows of them, which look the same.",
    "permuted": "Every task has all classes, with the pixels or features in an order of its own.",
    "rotated": "Every task has all classes, its images a quarter turn further than the task's before (2 to 4 tasks).",
}

REPLAYS = {
    "auxiliary": "Draws from short-term as ever, plus one cross-entropy term on a long-term draw.",
    "union": "Draws from short-term and long-term rows alike, no further term.",
    "both": "Union draws plus the auxiliary term.",
}

AUTO_REPLAY = "The method's own of these; the auxiliary term where gamma or its rule is given. The default."

GAMMA_RULES = {
    "fixed": "The auxiliary term weighs γ.",
    "share": "It weighs γ times the long-term part's share of the memory's rows.",
}

ANNOTATIONS = {
    "end": "Logits of long-term rows by the network at the end of their task.",
    "stream": "Logits that the rows had when they arrived.",
}

GROUNDS = {
    "auto": "'grid' for images in pixel space, else 'profile'.",
    "profile": "Mass moves cheaply between units that fire together.",
    "grid": "Mass moves between pixels by their distance.",
}

CLASS_ORDERS = {
    "natural": "Classes arrive in the order of their labels.",
    "seed": "Classes arrive in an order drawn from the seed.",
}

EVAL_CLASSES = {
    "seen": "Class-IL accuracy among the classes seen so far.",
    "all": "Class-IL accuracy among all classes of the stream.",
}

SPACES = {
    "features": "The network's penultimate layer, in evaluation mode.",
    "pixels": "The raw image.",
}

DEVICES = {
    "auto": "A GPU where there is one.",
    "cpu": "The processor.",
    "cuda": "A GPU by NVIDIA.",
}

PRECISIONS = {
    "fp32": "float32 throughout.",
    "tf32": "float32, but convolutions of a GPU round their inputs to 10 bits of fraction.",
    "bf16": "The backbone in bfloat16; weights, BatchNorm's statistics, the head and losses in float32.",
}


REFERENCE = Entry("paper.paper_reference:PaperReference", "The paper's numbers, beside which a report puts runs.")


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
