"""Let Optuna choose learning rate and α of DER++ on validation rows, then test the best once: no test row decides.

pip install odedm optuna; python examples/optuna_search.py

`odedm tune` does this with equally many tries with ODEDM and without. Here another search goes around `odedm.train`;
its trials are ordinary runs with the setting `validation`.
"""

from __future__ import annotations

import optuna

import odedm


def validated(trial: optuna.Trial) -> float:
    """The accuracy on held-out training rows of the first two tasks, mean over two seeds."""
    options = {
        "lr": trial.suggest_float("lr", 0.01, 0.5, log=True),
        "alpha": trial.suggest_float("alpha", 0.05, 1.0, log=True),
    }
    outcomes = odedm.train(
        "fashion-mini", method="derpp", options=options, validation=0.2, first_tasks=2, seeds=[1000, 1001]
    )
    return outcomes.mean["acc_last"]


if __name__ == "__main__":
    search = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
    search.optimize(validated, n_trials=20)
    print(search.best_params, odedm.train("fashion-mini", method="derpp", options=search.best_params, seeds=5))
