"""Overrides on both sides of the options of posfuse-train."""

from posfuse.process.arguments import overrides_first

# Forms of a command, and the arguments that Hydra's parser gets.
ORDERS = {
    "a=1 --config-dir my fusion=foo": "a=1 fusion=foo --config-dir my",
    "a=1 -cd my fusion=foo": "a=1 fusion=foo -cd my",
    "a=1 --config-dir=my fusion=foo": "a=1 fusion=foo --config-dir=my",
    "a=1 --config-d my fusion=foo": "a=1 fusion=foo --config-d my",
    "a=1 --config-n=other b=2": "a=1 b=2 --config-n=other",
    "--config-dir a=b c=1": "c=1 --config-dir a=b",
    "fusion=add --info": "fusion=add --info",
    "fusion=add -i": "fusion=add -i",
    "fusion=add -i seed=1": "fusion=add seed=1 -i",
    "--info fusion=add": "fusion=add --info",
    "--inf ~logger.tags": "~logger.tags --inf",
    "seed=1 --info defaults fusion=add": "seed=1 fusion=add --info defaults",
    "seed=1 --info=defaults fusion=add": "seed=1 fusion=add --info=defaults",
    "seed=1 --cfg job fusion=add": "seed=1 fusion=add --cfg job",
    "seed=1 -c job fusion=add": "seed=1 fusion=add -c job",
    "seed=1 --cfg=job --package model fusion=add": "seed=1 fusion=add --cfg=job --package model",
    "seed=1 -m fusion=add": "seed=1 fusion=add -m",
    "-m seed=1,2": "seed=1,2 -m",
    "seed=1,2 -m": "seed=1,2 -m",
    "seed=1 -m foo": "seed=1 foo -m",
    "seed=1 --resolve -c job --multirun b=2": "seed=1 b=2 --resolve -c job --multirun",
}


def test_overrides_stand_before_the_options():
    for given, ordered in ORDERS.items():
        assert overrides_first(given.split()) == ordered.split(), given
