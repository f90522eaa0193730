"""Requests about the session itself: HELLO, STATS, LISTEN and numbers; and those that
may wait, or take long.

They take their turn among the commands like a NOP, so that they come after the writes before
them; what they ask for is done right after it, before any other command.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from fjord import limits
from fjord.columns import Strings
from fjord.commands import (
    FUNCTIONS,
    REVISION,
    Batch,
    Command,
    Done,
    Get,
    Hello,
    Listen,
    ListenJobs,
    Next,
    Nop,
    Refusal,
    Reply,
    Scan,
    SealNow,
    Set,
    Span,
    Stats,
    Touch,
    Unlisten,
    Welcome,
)
from fjord.commands.layout import registers
from fjord.engine.cold import leaving
from fjord.engine.waits import JOBS_KEY
from fjord.errors import Code
from fjord.server.listeners import Listener, listen_problem
from fjord.server.origin import Patient
from fjord.server.sessions import Shared
from fjord.wire import Request


class Asker(Patient, Listener, Protocol):
    """Whose requests they are: the session."""

    client_id: bytes  # as HELLO said

    def numbered(self, request: Request, command: Any) -> Command | None:
        """Returns a command with its number, if it has one; None if it was refused."""
        ...


serves = registers("serve")


class OwnRequests:
    """What a session does itself, and how many keys its client listens to."""

    def __init__(self, session: Asker, shared: Shared) -> None:
        self._session = session
        self._shared = shared
        self._runner = shared.runner
        self._listened_keys = 0

    @serves(Refusal)
    def _refuse(self, request: Request, refusal: Refusal) -> None:
        self._session.answer(request, refusal)

    @serves(Scan, Span)
    def _scan(self, request: Request, command: Scan | Span) -> None:
        self._runner.scan(self._session, request, command)

    @serves(Stats)
    def _stats(self, request: Request, command: Stats) -> None:
        self._runner.submit(self._session, request, Nop(), lambda reply: self._shared.stats())

    @serves(Hello)
    def _hello(self, request: Request, command: Hello) -> None:
        if command.revision != REVISION:
            self._refuse(request, _OTHER_REVISION)
            return
        client = command.client if any(command.client) else self._shared.new_client()
        self._session.client_id = client

        def welcome(reply: Reply) -> Reply:
            if not isinstance(reply, Done):
                return reply
            return Welcome(client=client, master=reply.master, version=self._shared.version)

        self._runner.submit(self._session, request, Nop(), welcome)

    @serves(Next)
    def _next(self, request: Request, command: Next) -> None:
        self._shared.jobs.waiting.begin(self._session, request, command)

    @serves(Batch)
    def _batch(self, request: Request, command: Batch) -> None:
        found = self._session.numbered(request, command)
        if found is None:
            return
        if leaving(command):
            self._shared.reads.begin(self._session, request, found)
        else:
            self._runner.submit(self._session, request, found)

    def _read(self, request: Request, command: Command) -> None:
        """Runs a command that blocks may say the rest of, or after which less of them is needed."""
        found = self._session.numbered(request, command)
        if found is not None:
            self._shared.reads.begin(self._session, request, found)

    @serves(SealNow)
    def _seal(self, request: Request, command: SealNow) -> None:
        sealer = self._shared.sealer
        if sealer is None:
            self._refuse(request, _NO_SEALER)
        else:
            sealer.seal(self._session, request, command)

    # -- listening --------------------------------------------------------------------------------

    @serves(Listen)
    def _listen(self, request: Request, command: Listen) -> None:
        problem = listen_problem(command) or self._reserve(len(command.keys))
        if problem is not None:
            self._refuse(request, problem)
            return
        self._runner.submit(self._session, request, Nop(), self._listen_after(request, command))

    @serves(ListenJobs)
    def _listen_jobs(self, request: Request, command: ListenJobs) -> None:
        problem = self._shared.jobs.problem(command.table) or self._reserve(1)
        if problem is not None:
            self._refuse(request, problem)
            return
        whole = Listen(table=command.table, keys=Strings.of([JOBS_KEY]))
        listen = self._listen_after(request, whole)

        def listen_to_dates(reply: Reply) -> Reply:
            self._shared.jobs.listen(command.table)
            return listen(reply)

        self._runner.submit(self._session, request, Nop(), listen_to_dates)

    def begin_listening(self, request: Request, command: Set | Get | Touch) -> None:
        """Runs a SET or a GET; if it is not refused, its key is listened to from then on."""
        problem = self._reserve(len(command.keys))
        if problem is not None:
            self._refuse(request, problem)
            return
        listen = Listen(table=command.table, keys=command.keys)
        self._runner.submit(self._session, request, command, self._listen_after(request, listen))

    def _listen_after(self, request: Request, command: Listen) -> Callable[[Reply], Reply]:
        def listen(reply: Reply) -> Reply:
            added = 0
            if not isinstance(reply, Refusal) and self._session.is_open:
                keys = command.keys.rows()
                listeners = self._shared.listeners
                added = listeners.add(self._session, request.identifier, command.table, keys)
            self._listened_keys -= len(command.keys) - added
            return reply

        return listen

    @serves(Unlisten)
    def _unlisten(self, request: Request, command: Unlisten) -> None:
        def end(reply: Reply) -> Reply:
            ended = self._shared.listeners.end(self._session, command.identifier)
            if ended is None:
                return _NOT_LISTENING
            self._listened_keys -= ended
            return reply

        self._runner.submit(self._session, request, Nop(), end)

    def _reserve(self, keys: int) -> Refusal | None:
        """Counts keys to listen to before they are, so that requests under way count too."""
        if self._listened_keys + keys > limits.LISTENED_KEYS_MAX:
            return _TOO_MANY_KEYS
        self._listened_keys += keys
        return None


for _row in FUNCTIONS.values():
    if _row.look is not None or _row.leave is not None:
        _row.serve = OwnRequests._read

_OTHER_REVISION: Final = Refusal(
    code=Code.BAD_VERSION,
    text=f"this daemon speaks revision {REVISION} of the protocol; use a client of its version",
)
_NO_SEALER: Final = Refusal(code=Code.FAILED, text="this server does not seal; its log says why")
_TOO_MANY_KEYS: Final = Refusal(
    code=Code.QUOTA, text=f"a connection listens to at most {limits.LISTENED_KEYS_MAX} keys"
)
_NOT_LISTENING: Final = Refusal(
    code=Code.NOT_FOUND, text="no request with this identifier began to listen"
)
