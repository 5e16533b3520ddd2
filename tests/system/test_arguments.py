"""The arguments of posfuse-train: overrides on both sides of options, and a user's config files."""

from posfuse.process.arguments import overrides_first
from processes import assert_one_line


def test_a_config_file_that_cannot_be_read_is_named_with_what_is_wrong(run, tmp_path):
    folder = tmp_path / "conf" / "fusion"
    folder.mkdir(parents=True)
    (folder / "open.yaml").write_text("name: [foo\n  x: }\n")
    (folder / "control.yaml").write_bytes(b'name: "\x01"\n')
    (folder / "latin.yaml").write_bytes(b"name: caf\xe9\n")
    for name, message in (
        ("open", "not YAML (line 2, column 4: expected ',' or ']', but got ':'); correct"),
        ("control", "unacceptable character #x0001"),
        ("latin", "not UTF-8 (byte 0xe9); save it as UTF-8"),
    ):
        result = run("posfuse-train", "--config-dir", folder.parent, f"fusion={name}")
        assert_one_line(result, str(folder / f"{name}.yaml"), message)


def test_overrides_may_stand_on_both_sides_of_an_option(run, tmp_path):
    (tmp_path / "conf").mkdir()
    both = ["trainer.patience=3", "--config-dir", tmp_path / "conf", "seed=4", "--cfg", "job"]
    shown = run("posfuse-train", *both, "seed=5", "--package", "trainer.patience", "optim.lr=1")
    assert (shown.code, shown.out, shown.err) == (0, "3\n", "")
    wrong = run("posfuse-train", "a=1", "--config-dir", tmp_path / "conf", "fusion=foo")
    assert_one_line(wrong, "fusion/foo", "gate_scalar")


def test_the_file_that_is_not_utf_8_is_the_one_that_was_chosen(run, tmp_path):
    folder = tmp_path / "conf" / "fusion"
    (folder / "dir.yaml").mkdir(parents=True)
    (folder / "dang.yaml").symlink_to(tmp_path / "absent")
    (tmp_path / "conf" / "data").mkdir()
    (tmp_path / "texts").mkdir()
    read = [folder / "a.yaml", folder / "b.yaml"]
    for file in (*read, tmp_path / "conf" / "data" / "b.yaml", tmp_path / "texts" / "c.yaml"):
        file.write_bytes(b"name: caf\xe9\n")
    texts = f"data.path={tmp_path / 'texts'}"
    for option in (["--config-dir", folder.parent], [f"-cd={folder.parent}"]):
        for name in ("a", "b"):
            result = run("posfuse-train", texts, *option, f"fusion={name}", "-c", "job")
            assert_one_line(result, f"error: {folder / name}.yaml: not UTF-8 (byte 0xe9); save it")
    sweep = run("posfuse-train", "-m", "--config-dir", folder.parent, "fusion=add,b")
    assert_one_line(sweep, f"error: {folder / 'b'}.yaml: not UTF-8 (byte 0xe9); save it")


def test_a_config_file_without_keys_is_named(run, tmp_path):
    for group in ("data", "encoding", "fusion"):
        for text in ("- 1\n", "words\n", ""):
            file = tmp_path / "conf" / group / "mine.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            command = ["posfuse-train", "--config-dir", tmp_path / "conf", f"{group}=mine"]
            message = f"error: {file}: holds no keys; write key: value, as in the files of "
            assert_one_line(run(*command), message)
            if group == "fusion":
                wrong = run(*command, "trainer.foo=1")
                assert_one_line(wrong, message if text else "error: trainer.foo: unknown key")


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


def test_info_may_stand_on_both_sides_of_an_override(run):
    for given in ("fusion=concat --info", "fusion=concat -i", "--info fusion=concat",
                  "fusion=concat -i all seed=1"):  # fmt: skip
        shown = run("posfuse-train", *given.split())
        assert (shown.code, shown.err) == (0, ""), given
        assert "fusion: concat" in shown.out


def test_an_option_may_be_abbreviated(run, tmp_path):
    shown = run("posfuse-train", "seed=7", "--config-d", tmp_path, "--cfg", "job", "-p", "seed")
    assert (shown.code, shown.out, shown.err) == (0, "7\n", "")
