"""What a setting may choose from where plug-ins add nothing: names with a line each. `registry` has the others."""

from __future__ import annotations

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
