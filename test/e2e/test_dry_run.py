"""--dry-run from the command line, for a machine with eight GPUs that is not here."""

import json
import subprocess
import sys
from pathlib import Path

from harness.gpu import gpus
from harness.machines import several
from sglang.cuda_doctor.facts import to_json

SECONDS = 300


def started(program: list[str], pair, facts: Path, *flags: object) -> subprocess.Popen:
    draft = ["--speculative-algorithm", "DFLASH", "--speculative-draft-model-path", str(pair.draft)]
    command = [*program, "--model-path", str(pair.target), *draft, *map(str, flags), "--dry-run", str(facts)]
    return subprocess.Popen([sys.executable, *command], stdout=-1, stderr=-1, text=True)


def test_plan_is_printed_and_ends_the_launch(tiny_pair, tmp_path: Path) -> None:
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps({"facts": to_json(several(8)), "findings": []}))
    pair = tiny_pair(architecture="qwen3_moe")
    tree = ("--tp-size", 4, "--ep-size", 2, "--speculative-dflash-tree-budget", 16)
    fits = started(["-c", "from sglang.cli.main import main; main()", "serve"], pair, facts, *tree)
    many = started(["-m", "sglang.launch_server"], pair, facts, "--tp-size", 16)
    printed, errors = fits.communicate(timeout=SECONDS)
    assert fits.returncode == 0, errors[-3000:]
    assert "3     0   3   0 to 3  1         4 to 7, 1/2 of each  yes" in printed
    assert "DFLASH, trees of 16 draft nodes" in printed and "peer access over PCIe" in printed
    assert ("backends are those of this machine (cpu)" in printed) == (gpus() == 0)
    assert "Nothing stands in the way." in printed
    printed, _ = many.communicate(timeout=SECONDS)
    assert many.returncode == 1 and "error: --tp-size 16 --pp-size 1: 16 GPUs are needed and there are 8." in printed
