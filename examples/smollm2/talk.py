"""The chat at the terminal."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.prompt import Prompt

from examples.smollm2.chat import Conversation, FullError, Reader, begin
from examples.smollm2.tokenizer import SYSTEM, ChatTokenizer
from examples.smollm2.weights import open_weights
from pte_arenas.errors import ArenaError
from pte_arenas.runtime import load_program

if TYPE_CHECKING:
    from collections.abc import Callable

    from examples.smollm2.chat import Choose

HELP = """\
/reset      begin again after the system prompt
/save FILE  write the conversation to a file
/load FILE  go on with the conversation of a file
/fork       go on in a copy of the conversation
/back       return to where the last /fork left
/quit       or the end of input"""


class Talk:
    """Conversations at the terminal, the last of which goes on.

    Attributes:
        conversations: Each a fork of the one before; the first is what the system prompt left.
        console: Where answers go.
    """

    def __init__(self, start: Conversation, console: Console, most: int | None = None) -> None:
        """Begins the first conversation as a fork of what has read the system prompt."""
        self._start = start
        self._most = most
        self.console = console
        self.conversations = [start.fork()]

    def say(self, line: str) -> None:
        """Does a command, or asks the model and prints its answer as it comes."""
        command, _, argument = line.partition(" ")
        commands: dict[str, Callable[[], object]] = {
            "/reset": self._reset,
            "/fork": self._fork,
            "/back": self._back,
            "/help": lambda: self._print(HELP),
        }
        files: dict[str, tuple[Callable[[Path], object], str]] = {
            "/save": (self.conversations[-1].save, "saved"),
            "/load": (self.conversations[-1].load, "loaded"),
        }
        name = argument.strip()
        try:
            if command in files and name:
                act, done = files[command]
                act(Path(name).expanduser())
                self._print(f"{name}: {done}")
            elif command in files:
                self._print(f"{command}: expected the name of a file but found none")
            elif command in commands and name:
                self._print(f"{command}: expected nothing behind it but found {name!r}")
            elif command in commands:
                commands[command]()
            elif line.startswith("/"):
                self._print(f"{command}: expected a command but found none of this name\n{HELP}")
            elif line.strip():
                self._ask(line)
        except FullError as error:
            self._print(f"{error}; /reset begins again")
        except OSError as error:
            self._print(f"{name}: {(error.strerror or str(error)).lower()}")
        except (ArenaError, RuntimeError, ValueError) as error:  # such as a zero byte, `~nobody`
            self._print(str(error))

    def _ask(self, question: str) -> None:
        conversation = self.conversations[-1]
        for piece in conversation.ask(question, self._most):
            self.console.out(piece, end="", highlight=False)
        self.console.out()
        if conversation.reader.full:
            self._print("the KV cache is full; /reset begins again")
        elif not conversation.ended:
            self._print(f"cut after {self._most:,} tokens; --most allows for more")

    def _reset(self) -> None:
        self.conversations[-1] = self._start.fork()
        self._print(f"began again; {self._where()}")

    def _fork(self) -> None:
        self.conversations.append(self.conversations[-1].fork())
        self._print(f"forked; {self._where()}")

    def _back(self) -> None:
        if len(self.conversations) == 1:
            self._print("expected a conversation that /fork left but found none")
        else:
            self.conversations.pop()
            self._print(f"went back; {self._where()}")

    def _where(self) -> str:
        filled = self.conversations[-1].reader.filled
        return f"conversation {len(self.conversations)} has {filled:,} tokens"

    def _print(self, text: str) -> None:
        self.console.print(text, style="dim", markup=False, highlight=False)


def talk(path: Path, system: str | None, choose: Choose, most: int) -> None:
    """Reads lines until the end of input; answers have at most so many tokens.

    Raises:
        FullError: There is no room for the system prompt.
    """
    console = Console()
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="replace")  # what is no text would end the conversation
    with console.status("loading the model and reading the system prompt"):
        tokenizer = ChatTokenizer(open_weights().metadata)
        prompt = SYSTEM if system is None else system
        start = begin(Reader(load_program(path)), tokenizer, prompt, choose)
    chat = Talk(start, console, most)
    console.print(HELP, style="dim", markup=False, highlight=False)
    while True:
        try:
            line = Prompt.ask(">" * len(chat.conversations), console=console)
        except (EOFError, KeyboardInterrupt):
            return
        if line == "/quit":
            return
        try:
            chat.say(line)
        except KeyboardInterrupt:
            console.out()
