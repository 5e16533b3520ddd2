"""The commands of docs/folding.md run on a trained run."""

import re
from pathlib import Path

from posfuse.train import train
from recipes import blocks
from small_runs import small_config, write_corpus

CODE = blocks("docs/folding.md")


def test_the_documented_commands_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (folder,) = map(Path, re.findall(r'load_run\("(.*?)"\)', CODE[0]))
    folder.mkdir(parents=True)
    corpus = write_corpus(tmp_path / "corpus")
    train(small_config(corpus, "fusion=gate_scalar", "trainer.max_epochs=1"), folder)
    names: dict = {}
    exec(CODE[0], names)
    batch = names["batch"]
    assert names["predicted"].tolist() == (
        names["classifier"].model(batch.ids, batch.lengths).argmax(-1).tolist()
    )
    exec(CODE[1], names)
    assert capsys.readouterr().out.startswith("['0', '1', '2'] tensor([[")
