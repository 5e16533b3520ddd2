"""posfuse sync as a command: a key or token is never printed or written."""

import os
import sys

import pytest

from fake_wandb import serve
from posfuse.tracking.projection import Finished
from posfuse.train import train
from processes import ended
from small_runs import small_config
from uploads import check_held


@pytest.mark.smoke
def test_a_key_or_token_is_never_printed_or_written(corpus, tmp_path):
    """The key is in netrc and the token in the server's address."""
    password, token = "f" * 32 + "password", "planted0token"
    sweep, home = tmp_path / "mine", tmp_path / "home"
    train(small_config(corpus, "fusion=add"), sweep / "seed=0")
    home.mkdir()
    env = {k: v for k, v in os.environ.items() if not k.startswith("WANDB_")}
    with serve() as fake:
        env |= {"HOME": str(home), "WANDB_BASE_URL": fake.url.replace("//", f"//user:{token}@")}
        netrc = home / ".netrc"
        host = fake.url.split("/")[-1]
        netrc.write_text(f"machine user:{token}@{host} login user password {password}\n")
        netrc.chmod(0o600)
        done = ended([sys.executable, "-m", "posfuse", "sync", sweep.name], tmp_path, env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{fake.url} holds 1 of 1 runs\n")
    check_held(fake, Finished.read(sweep / "seed=0"))
    netrc.unlink()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in files if path.is_relative_to(home) and "wandb" in str(path)]
    held = [*(path.read_bytes() for path in files), str(vars(fake)).encode()]
    held += [done.stdout.encode(), done.stderr.encode()]
    for planted in (password, token):
        assert not any(planted.encode() in content for content in held)
