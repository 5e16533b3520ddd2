"""Golden losses: three training steps of each operator and each encoding on a tiny network.

`python tests/unit/test_golden.py` adds the losses of new operators and encodings to golden.json;
with --all it writes all losses again, for a change that is meant to change numbers. Losses that
another machine has added are not compared bit by bit.
"""

import json
import platform
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parents[1]))  # where it is started as a program

from variants import make_network, pairs

GOLDEN = Path(__file__).with_name("golden.json")
PAIRS = pairs("add", "sinusoidal")


def losses(operator: str, encoding: str) -> list[float]:
    """The loss of three steps of AdamW with dropout, float32, one thread."""
    network = make_network(operator, encoding)
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([12, 7, 1, 9])
    found = []
    for step in range(3):
        ids = torch.randint(1, 20, (4, 12), generator=generator)
        ids[torch.arange(12) >= lengths[:, None]] = 0
        labels = torch.randint(0, 3, (4,), generator=generator)
        torch.manual_seed(step)
        loss = F.cross_entropy(network(ids, lengths), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


def machine() -> str:
    """What the last bits of a loss depend on, beside the program. The libraries for products choose
    their code by the model of the CPU, and not by its instructions alone."""
    capability = torch.backends.cpu.get_cpu_capability()
    return f"{platform.machine()} {capability} {processor()} torch {torch.__version__}"


def processor() -> str:
    """The CPU's vendor, family and model, as "AuthenticAMD 25 17", and whether it announces AMX."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return platform.processor()
    first = path.read_text().partition("\n\n")[0]
    facts = {k.strip(): v.strip() for k, _, v in (x.partition(":") for x in first.splitlines())}
    known = [facts.get(name, "") for name in ("vendor_id", "cpu family", "model")]
    return " ".join([*known, *(["amx"] if "amx_tile" in facts.get("flags", "") else [])])


@pytest.fixture(scope="module")
def golden():
    return json.loads(GOLDEN.read_text())


@pytest.mark.parametrize(("operator", "encoding"), PAIRS)
def test_losses_are_the_golden_ones(operator, encoding, golden):
    name = f"{operator} {encoding}"
    if golden["machine"] == machine() and name in golden["losses"]:
        assert losses(operator, encoding) == golden["losses"][name]
    else:  # other instructions, or another torch, add up in another order
        known = golden["losses"] | golden.get("added_elsewhere", {})
        assert losses(operator, encoding) == pytest.approx(known[name], rel=1e-4)


def main() -> None:
    torch.set_num_threads(1)
    golden = {} if "--all" in sys.argv else json.loads(GOLDEN.read_text())
    is_here = golden.setdefault("machine", machine()) == machine()
    known = golden.setdefault("losses", {})
    added = known if is_here else golden.setdefault("added_elsewhere", {})
    for operator, encoding in PAIRS:
        name = f"{operator} {encoding}"
        if name not in known | added:
            added[name] = losses(operator, encoding)
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
