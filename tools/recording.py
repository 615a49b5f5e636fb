"""Record `standfast chat --demo` being killed and going on, as a picture for the README (`./dev recording`).

The command really runs at a pseudo-terminal and is really killed; what it prints is drawn as it came. Only the speed is
ours: people read slower than the command answers. The picture is one SVG whose lines appear one after the other; where
motion is not wanted, all of them stand there.
"""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import sys
import tempfile
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "chat-killed-and-continued.svg"
TITLE = "A chat is killed while a payment waits for approval, and goes on"
COLUMNS = 88
DEADLINE_S = 120.0
TYPED_S, SAID_S, KILLED_S = 1.2, 0.5, 1.5
CHAT = "standfast chat --demo --session invoice"
STYLE = """
svg { font: 13px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.page { fill: #f6f8fa; stroke: #d0d7de; } text { fill: #1f2328; white-space: pre; } .typed { fill: #0550ae; }
.killed { fill: #b42318; }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117; stroke: #3d444d; } text { fill: #f0f6fc; } .typed { fill: #79c0ff; } .killed { fill: #ff7b72; }
}
@keyframes comes { from { opacity: 0 } to { opacity: 1 } }
.line { animation: comes 0.1s both; }
@media (prefers-reduced-motion: reduce) { .line { animation: none; } }
"""


class Line(NamedTuple):
    """A line of the terminal, and who made it: "typed", "said" or "killed"."""

    text: str
    kind: str


class Terminal:
    """A command at a pseudo-terminal, and everything that was seen there."""

    def __init__(self, folder: str, lines: list[Line], *options: str) -> None:
        self.lines, self._unread = lines, ""
        self.process, self.file = pty.fork()
        if self.process == 0:
            kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
            os.chdir(folder)
            command = [sys.executable, "-m", "standfast", "chat", "--demo", *options]
            os.execve(sys.executable, command, {**kept, "PYTHONPATH": str(ROOT / "src"), "TERM": "dumb"})

    def until(self, prompt: str) -> str:
        """Keep what it says until it asks; the question itself."""
        while not self._unread.endswith(prompt):
            ready, _, _ = select.select([self.file], [], [], DEADLINE_S)
            part = os.read(self.file, 65536) if ready else b""
            if not part:
                raise SystemExit(f"{prompt!r} did not come; seen so far: {self._unread!r}")
            self._unread += part.decode()
        *said, asked = self._unread.replace("\r", "").split("\n")
        self.lines += [Line(one, "said") for one in said if one]
        self._unread = ""
        return asked

    def types(self, prompt: str, line: str) -> None:
        """Answer a question."""
        asked = self.until(prompt)
        self.lines.append(Line(asked + line, "typed"))
        os.write(self.file, f"{line}\n".encode())
        self._echo(line)

    def _echo(self, line: str) -> None:
        """Read the terminal's echo of what was typed, which is in the lines already."""
        while "\n" not in self._unread:
            self._unread += os.read(self.file, 65536).decode()
        self._unread = self._unread.partition("\n")[2]

    def ends(self, by: int | None = None) -> None:
        """Wait for its end, or make one."""
        if by is not None:
            os.kill(self.process, by)
        os.waitpid(self.process, 0)
        os.close(self.file)


def recorded() -> list[Line]:
    """What is seen at the terminal, from the first command to the last."""
    with tempfile.TemporaryDirectory() as folder:
        lines = [Line(f"$ {CHAT}", "typed")]
        first = Terminal(folder, lines, "--session", "invoice")
        first.types("> ", "pay 120 to ACME")
        asked = first.until("why not: ")
        lines.append(Line(asked, "said"))
        first.ends(by=signal.SIGKILL)
        lines.append(Line("Killed                        # kill -9, from another terminal", "killed"))
        lines.append(Line("$ standfast chat --demo --continue", "typed"))
        second = Terminal(folder, lines, "--continue")
        second.types("why not: ", "y")
        second.types("> ", "what did I say?")
        second.types("> ", "/exit")
        second.ends()
    return lines


def drawn(lines: list[Line]) -> str:
    """The picture."""
    parts, at, y = [], 0.0, 30
    for line in lines:
        at += {"typed": TYPED_S, "said": SAID_S, "killed": KILLED_S}[line.kind]
        for piece in [line.text[begin : begin + COLUMNS] for begin in range(0, len(line.text), COLUMNS)]:
            shown = f'class="line {line.kind}" style="animation-delay:{at:.1f}s"'
            parts.append(f'<text {shown} x="16" y="{y}">{escape(piece)}</text>')
            y += 19
    width = COLUMNS * 8 + 32
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {y}" width="{width}" height="{y}" role="img"'
        ' aria-labelledby="t d">',
        f'<title id="t">{escape(TITLE)}</title>',
        f'<desc id="d">{escape(" / ".join(line.text for line in lines))}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{width - 1}" height="{y - 1}" rx="6"/>',
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def comparable(picture: str) -> str:
    """A picture without what differs from run to run: the ids of runs."""
    return re.sub(r"Run [0-9a-f]{32}", "Run …", picture)


def main() -> int:
    """Record it and draw it."""
    FILE.write_text(drawn(recorded()), encoding="utf-8")
    print(f"drew {FILE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
