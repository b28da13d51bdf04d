"""The learner on a GPU; skipped where there is none."""

import pytest
import torch

from odedm import ODEDM, Learner, UsageError, shapes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("default"),
]


@pytest.mark.parametrize("memory", [ODEDM(40, rho=0.5), ODEDM(60, k=3, candidates=6)], ids=["share", "candidates"])
def test_it_learns_there_grows_and_goes_on_from_a_file(memory, tmp_path):
    data = shapes()
    order = data.label.argsort(stable=True)
    learner = Learner("derpp", memory=memory, batch=8, patience=20, device="cuda")
    for part in order.split(8)[:12]:
        learner.partial_fit(data.image[part], data.label[part])
    assert learner.size("long")
    other = Learner.load(learner.save(tmp_path / "learner"), device="cuda")
    for each in (learner, other):
        for part in order.split(8)[12:]:
            each.partial_fit(data.image[part], data.label[part])
    assert (learner.predict_proba(data.test_image) == other.predict_proba(data.test_image)).all()
    assert len(learner.classes_) == data.classes
    with pytest.raises(UsageError, match="it was saved on"):
        Learner.load(tmp_path / "learner", device="cpu")
