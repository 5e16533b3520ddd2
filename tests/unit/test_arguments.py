"""Overrides on both sides of the options of posfuse train."""

import re

import pytest

from posfuse.process.arguments import check_protocol, overrides_first
from refusals import refusal

# Forms of a command, and the arguments that Hydra's parser gets.
ORDERS = {
    "a=1 -cd my fusion=foo": "a=1 fusion=foo -cd my",
    "a=1 --config-dir=my fusion=foo": "a=1 fusion=foo --config-dir=my",
    "--config-dir=a=b c=1": "c=1 --config-dir=a=b",
    "--config-dir runs/seed=0 fusion=add": "fusion=add --config-dir runs/seed=0",
    "fusion=add -i seed=1": "fusion=add seed=1 -i",
    "--inf ~logger.tags": "~logger.tags --inf",
    "seed=1 --info defaults fusion=add": "seed=1 fusion=add --info defaults",
    "seed=1 --info=defaults fusion=add": "seed=1 fusion=add --info=defaults",
    "seed=1 -c job fusion=add": "seed=1 fusion=add -c job",
    "seed=1 --cfg=job --package model fusion=add": "seed=1 fusion=add --cfg=job --package model",
    "seed=1 -m foo": "seed=1 foo -m",
    "seed=1 --resolve -c job --multirun b=2": "seed=1 b=2 --resolve -c job --multirun",
    "~data.corpus +data.corpus={a:1}": "~data.corpus +data.corpus={a:1}",  # not twice
    "a=1 b=a=1": "a=1 b=a=1",
}


def test_overrides_stand_before_the_options():
    for given, ordered in ORDERS.items():
        assert overrides_first(given.split()) == ordered.split(), given


@pytest.mark.parametrize(
    "given",
    [
        "seed=0,1 seed=2,3",
        "seed=0 -m seed=0",
        "seed=0 ++seed=1",
        "model.dropout=0 ~model.dropout",
        "~logger.tags +logger.tags=[a] logger.tags=[b]",
        "hydra.launcher.n_jobs=1 hydra.launcher.n_jobs=2",
    ],
)
def test_a_key_that_is_given_twice_is_refused(given):
    line = refusal(overrides_first, given.split())
    assert re.match(r"\S+: given twice \(\S+ and \S+\); give it once", line)


def test_a_protocol_without_a_file_is_refused(tmp_path):
    """Hydra would train with other settings than the user asked for."""
    for name in ("imbd", "quickstart/imbd", "mine"):
        line = refusal(check_protocol, name, [])
        assert line == f"protocol: no {name!r}; use one of agnews, arxiv, imdb"
    (tmp_path / "protocol").mkdir()
    (tmp_path / "protocol" / "mine.yaml").touch()
    for name, folders in (("mine", [str(tmp_path)]), ("mine", ["pkg://a.b"])):
        check_protocol(name, folders)
    for name in ("null", "imdb", "quickstart/listops"):
        check_protocol(name, [])
