"""Lists what is known of published data sets: where their files are, how to tell them, and their usual constants."""

from __future__ import annotations

from dataclasses import dataclass

Channels = tuple[float, ...]
"""A number for each channel: red, green and blue, or grey."""


@dataclass(frozen=True)
class Archive:
    """One official file; `size` in bytes where it is known, `digest` by SHA-256, or by MD5 where only that is known."""

    url: str
    size: int | None
    digest: str

    @property
    def algorithm(self) -> str:
        """Return what the digest was made by."""
        return "sha256" if len(self.digest) == 64 else "md5"

    @property
    def file(self) -> str:
        """Return the file's name.

        >>> Archive("https://example.org/a/b.tar", None, "0").file
        'b.tar'
        """
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class PublishedDataset:
    """A published data set: archives, rows in training and test, constants.

    Any of the archives has all of it, and the first is the one to get; where `together`, each has a part.
    """

    name: str
    about: str
    archives: tuple[Archive, ...]
    classes: int
    rows: tuple[int, int]
    shape: tuple[int, int, int]
    tasks: int
    mean: Channels
    deviation: Channels
    pad: int = 4
    flip: bool = True
    class_names: tuple[str, ...] = ()
    tolerance: float | None = 0.005
    """How far the measured channel means may lie from `mean`; None where the constants are another set's."""
    together: bool = False


CIFAR10_NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR100_NAMES = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle", "bottle", "bowl",
    "boy", "bridge", "bus", "butterfly", "camel", "can", "castle", "caterpillar", "cattle", "chair", "chimpanzee",
    "clock", "cloud", "cockroach", "couch", "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant",
    "flatfish", "forest", "fox", "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower",
    "leopard", "lion", "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom",
    "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree", "plain", "plate",
    "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road", "rocket", "rose", "sea", "seal", "shark",
    "shrew", "skunk", "skyscraper", "snail", "snake", "spider", "squirrel", "streetcar", "sunflower",
    "sweet_pepper", "table", "tank", "telephone", "television", "tiger", "tractor", "train", "trout", "tulip",
    "turtle", "wardrobe", "whale", "willow_tree", "wolf", "woman", "worm",
)  # fmt: skip
FASHION_NAMES = (
    "t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle-boot",
)  # fmt: skip
OTHER_NAMES = {"plane": "airplane", "aeroplane": "airplane", "car": "automobile"}
"""What folders of CIFAR-10 are also called."""

SIZE_AND_DIGEST = {
    "cifar-10-binary.tar.gz": (170_052_171, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),
    "cifar-10-python.tar.gz": (170_498_071, "6d958be074577803d12ecdefd02955f39262c83c16fe9348329d7fe0b5c001ce"),
    "cifar-100-binary.tar.gz": (168_513_733, "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"),
    "cifar-100-python.tar.gz": (169_001_437, "85cd44d02ba6437773c5bbd22e183051d648de2e7d6b014e1ef29b855ba677a7"),
    "tiny-imagenet-200.zip": (248_100_043, "90528d7ca1a48142e341f4ef8d21d0de"),
    "imagenet-r.tar": (None, "a61312130a589d0ca1a8fca1f2bd3337"),
}


def _archives(place: str, *files: str) -> tuple[Archive, ...]:
    return tuple(Archive(place + file, *SIZE_AND_DIGEST[file]) for file in files)


def _cifar(classes: int, tasks: int, mean: Channels, deviation: Channels, names: tuple[str, ...]) -> PublishedDataset:
    """CIFAR-10 or CIFAR-100, which differ in their classes alone."""
    files = [f"cifar-{classes}-{version}.tar.gz" for version in ("binary", "python")]
    return PublishedDataset(
        f"cifar{classes}",
        f"60 000 colour images, 32×32, {classes} classes; {tasks} tasks of {classes // tasks}.",
        _archives("https://www.cs.toronto.edu/~kriz/", *files),
        classes,
        (50_000, 10_000),
        (3, 32, 32),
        tasks,
        mean,
        deviation,
        class_names=names,
    )


def _idx(
    name: str, about: str, place: str, digests: tuple[str, ...], constants: tuple[float, float], names: tuple[str, ...]
) -> PublishedDataset:
    """MNIST or Fashion-MNIST, which have the same layout."""
    files = (f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1"))
    mean, deviation = constants
    return PublishedDataset(
        name,
        f"70 000 grey images of {about}, 28×28, 10 classes; 5 tasks of 2.",
        tuple(Archive(place + file, None, digest) for file, digest in zip(files, digests, strict=True)),
        classes=10,
        rows=(60_000, 10_000),
        shape=(1, 28, 28),
        tasks=5,
        mean=(mean,),
        deviation=(deviation,),
        pad=0,
        flip=False,
        class_names=names,
        together=True,
    )


MNIST_DIGESTS = (
    "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "d53e105ee54ea40749a09fcbcd1e9432",
    "9fb629c4189551a2d022fa330f9573f3",
    "ec29112dd5afa0611ce80d1b7f02629c",
)
FASHION_DIGESTS = (
    "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "25c81989df183df01b3e8a0aad5dffbe",
    "bef4ecab320f06d8554ea6380940ec79",
    "bb300cfdad3c16e7a12a480ee83cd310",
)

PUBLISHED = {
    dataset.name: dataset
    for dataset in (
        _cifar(10, 5, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2615), CIFAR10_NAMES),
        _cifar(100, 10, (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761), CIFAR100_NAMES),
        _idx(
            "mnist",
            "digits",
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            MNIST_DIGESTS,
            (0.1307, 0.3081),
            tuple("0123456789"),
        ),
        _idx(
            "fashion-mnist",
            "clothes",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            FASHION_DIGESTS,
            (0.2860, 0.3530),
            FASHION_NAMES,
        ),
        PublishedDataset(
            "tiny-imagenet",
            "110 000 colour images, 64×64, 200 classes; 10 tasks of 20; the annotated validation set is the test set.",
            _archives("http://cs231n.stanford.edu/", "tiny-imagenet-200.zip"),
            classes=200,
            rows=(100_000, 10_000),
            shape=(3, 64, 64),
            tasks=10,
            mean=(0.4802, 0.4480, 0.3975),
            deviation=(0.2770, 0.2691, 0.2821),
        ),
        PublishedDataset(
            "imagenet-r",
            "30 000 renditions, cut to 224×224, 200 classes; 10 tasks of 20; a seeded fifth is for testing.",
            _archives("https://people.eecs.berkeley.edu/~hendrycks/", "imagenet-r.tar"),
            classes=200,
            rows=(24_000, 6_000),
            shape=(3, 224, 224),
            tasks=10,
            mean=(0.485, 0.456, 0.406),
            deviation=(0.229, 0.224, 0.225),
            pad=28,
            tolerance=None,
        ),
    )
}
"""Every published data set by its name."""
