"""Commands that lead into cold blocks: what the engine cannot answer, a cold reader can.

    run the command ---> answered ------------------------------------------> reply
          ^                |
          |             InBlock: ask the cold reader, which may take a while
          |                |
          +--- run again --+--- a page of messages, or an error --------------> reply

The engine touches no block.  A READ that reaches one is answered from it.  A SUBSCRIBE or SEEK to
a moment inside one is run again with the seq of that moment.  A LAG is run again from the end of
the block, and the block's count is added.  This module has the steps; the server and Embedded run
them.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

from fjord import commands, limits
from fjord.commands import Command, Read, Refusal, Reply
from fjord.commands.codec import data_bytes
from fjord.commands.layout import registers
from fjord.errors import Code, CorruptionError, FjordError
from fjord.streams import Start


class ColdReader(Protocol):
    """A reader of blocks; its calls may take long, and any thread may make them."""

    def read(self, where: commands.InBlock, command: Read) -> commands.Messages:
        """Returns messages of a block."""

    def locate(self, where: commands.InBlock, wall_us: int) -> int:
        """Returns the seq before the first message of a block at or after a moment."""

    def count_after(self, where: commands.InBlock, after: int) -> int:
        """Returns how many messages of a block follow a seq."""

    def rest(self, table: str, subscriber: str) -> None:
        """Releases the memory of a subscriber."""

    def forget(self, table: str) -> None:
        """Releases the memory of a table."""

    def stats(self) -> dict[str, int]: ...

    def close(self) -> None:
        """Waits for reads ahead, and releases all memory."""


looks = registers("look")
leaves = registers("leave")


def leaving(command: Command) -> list[Command]:
    """Returns those of a command, or of a batch, that release parts of blocks."""
    if type(command) is commands.Numbered:
        command = command.command
    found = command.commands if type(command) is commands.Batch else (command,)
    return [one for one in found if type(one).row.leave is not None]


class Errand:
    """A command in progress: run `command`, `take` the reply, `look` if that is no answer yet."""

    __slots__ = ("_found", "_messages", "_missed", "_seqs", "command")

    def __init__(self, command: Command) -> None:
        self.command: Any = command  # the command to run next
        self._found: commands.InBlock | commands.Replies | None = None
        self._messages = 0  # of a LAG: counted in blocks so far
        self._seqs = 0
        self._missed = ""  # a block that was missing

    def take(self, reply: Reply) -> Reply | None:
        """Returns the answer; None if a block must be read."""
        if isinstance(reply, commands.InBlock) or (
            isinstance(reply, commands.Replies) and commands.InBlock in map(type, reply.replies)
        ):
            self._found = reply
            return None
        if self._seqs and type(reply) is commands.Numbers:
            more = {b"messages": self._messages, b"seqs": self._seqs}
            names = reply.names.rows()
            pairs = zip(names, reply.values, strict=True)
            values = [value + more.get(name, 0) for name, value in pairs]
            return commands.Numbers(names=reply.names, values=values)
        return reply

    def look(self, cold: LazyCold | None) -> Reply | None:
        """Asks the cold reader; returns the answer, None if `command` must be run again."""
        found = self._found
        assert found is not None
        if cold is None:
            return _NO_COLD
        try:
            look = type(self.command).row.look
            assert look is not None
            answer: Reply | None = look(self, found, cold.made())
            return answer
        except CorruptionError as error:
            return Refusal(code=Code.CORRUPT, text=str(error))
        except FileNotFoundError as error:
            return self._miss(error)
        except (FjordError, OSError) as error:
            return Refusal(code=Code.FAILED, text=f"a cold block cannot be read: {error}")

    @looks(Read)
    def _read(self, where: commands.InBlock, cold: ColdReader) -> Reply | None:
        command = self.command
        messages = cold.read(where, command)
        if messages.rows or messages.after <= command.after or command.until == messages.after:
            return messages
        # Nothing was returned yet, so the rest may be of a later snapshot.
        self.command = dataclasses.replace(command, after=messages.after)
        return None

    @looks(commands.Subscribe, commands.Seek)
    def _locate(self, where: commands.InBlock, cold: ColdReader) -> None:
        seq = cold.locate(where, self.command.at)
        self.command = dataclasses.replace(self.command, start=int(Start.SEQ), at=seq + 1)

    @looks(commands.Lag)
    def _count(self, where: commands.InBlock, cold: ColdReader) -> None:
        self._messages += cold.count_after(where, where.after)
        self._seqs += where.last - where.after
        self.command = dataclasses.replace(self.command, after=where.last)

    @looks(commands.AsOf)
    def _fill(self, found: commands.Replies, cold: ColdReader) -> Reply:
        """Answers the reads of a snapshot that reached blocks, as far as one answer has room."""
        replies = list(found.replies)
        answer_bytes = sum(data_bytes(one) for one in replies if type(one) is not commands.InBlock)
        for number, (command, reply) in enumerate(zip(self.command.commands, replies, strict=True)):
            if isinstance(reply, commands.InBlock):
                replies[number] = messages = cold.read(reply, command)
                answer_bytes += data_bytes(messages)
            if answer_bytes > limits.ANSWER_BYTES_MAX:
                return _TOO_LARGE
        return commands.Replies(replies=replies)

    def _miss(self, error: FileNotFoundError) -> Refusal | None:
        """Retention may have removed a block; then the engine does not name it again."""
        found = self._found
        name = found.name if isinstance(found, commands.InBlock) else ""
        if name and name != self._missed:
            self._missed = name
            return None
        text = f"cold block {name or error} is missing; see fjord blocks verify"
        return Refusal(code=Code.FAILED, text=text)


_TOO_LARGE: Final = Refusal(
    code=Code.TOO_LARGE,
    text=f"answers from a snapshot have at most {limits.ANSWER_BYTES_MAX} bytes; ask for less",
)
_NO_COLD: Final = Refusal(code=Code.FAILED, text="this is in a cold block, and none can be read")


class LazyCold:
    """A cold reader that is created when a block is first read: it needs large libraries.

    It also sees other answers, so that a subscriber costs no memory once it has left the blocks and
    reads from the journal, or has moved elsewhere, is asleep or gone.
    """

    def __init__(self, make: Callable[[], ColdReader]) -> None:
        self._make = make
        self.reader: ColdReader | None = None  # None: no block was read yet
        self._making = threading.Lock()

    def rest(self, table: str, subscriber: str) -> None:
        if self.reader is not None:
            self.reader.rest(table, subscriber)

    def forget(self, table: str) -> None:
        if self.reader is not None:
            self.reader.forget(table)

    def stats(self) -> dict[str, int]:
        return {} if self.reader is None else self.reader.stats()

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()

    def note(self, command: Command, reply: Reply) -> None:
        """Notes a reply that did not come from a block."""
        if self.reader is None:
            return
        if isinstance(command, Read):
            if command.subscriber:
                self.rest(command.table, command.subscriber)
        elif type(reply) is not Refusal:
            for one in leaving(command):
                leave = type(one).row.leave
                assert leave is not None
                leave(self, one)

    @leaves(commands.DropTable)
    def _leave_table(self, command: commands.DropTable) -> None:
        self.forget(command.name)

    @leaves(commands.Seek, commands.Unsubscribe)
    def _leave_place(self, command: commands.Seek | commands.Unsubscribe) -> None:
        self.rest(command.table, command.name)

    @leaves(commands.Rest)
    def _leave_for_now(self, command: commands.Rest) -> None:
        if command.asleep:
            self.rest(command.table, command.name)

    def made(self) -> ColdReader:
        """Returns the reader, which the first call creates."""
        with self._making:
            if self.reader is None:
                try:
                    self.reader = self._make()
                except ModuleNotFoundError as error:
                    raise FjordError(
                        f"cold blocks need {error.name}: pip install 'fjord-journal[server]'"
                    ) from error
            return self.reader
