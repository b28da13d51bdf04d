"""As much of the package `datasets` of Hugging Face as saving and reading small data sets takes, kept in memory."""

import numpy as np

SAVED = {}


class Image:
    def __init__(self, decode=True):
        self.decode = decode


class Value:
    def __init__(self, dtype):
        self.dtype = dtype


class ClassLabel:
    def __init__(self, names):
        self.names = names


class Sequence(Value):
    pass


class Features(dict):
    pass


class Dataset:
    def __init__(self, columns, features):
        self.columns, self.features = columns, features

    @classmethod
    def from_dict(cls, columns, features):
        return cls(columns, features)

    def __getitem__(self, name):
        if isinstance(self.features[name], Image) and self.features[name].decode:
            raise AssertionError("pictures are decoded by us")
        return self.columns[name]

    def cast_column(self, name, feature):
        return Dataset(self.columns, Features(self.features) | {name: feature})

    def with_format(self, form):
        assert form == "numpy"
        return Dataset({name: np.array(column) for name, column in self.columns.items()}, self.features)

    def select(self, rows):
        return Dataset({name: [column[row] for row in rows] for name, column in self.columns.items()}, self.features)

    def save_to_disk(self, path):
        save(path, self, "state.json")


class DatasetDict(dict):
    def save_to_disk(self, path):
        save(path, self, "dataset_dict.json")


def save(path, value, mark):
    from pathlib import Path

    Path(path).mkdir()
    (Path(path) / mark).write_text("{}")
    SAVED[str(path)] = value


def load_from_disk(path):
    return SAVED[str(path)]
