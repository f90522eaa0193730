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
    Numbered,
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
from fjord.engine.cold import ERRANDS, PARTINGS, has_parting
from fjord.engine.waits import JOBS_KEY
from fjord.errors import Code
from fjord.server.listeners import Listener, listen_problem
from fjord.server.origin import Origin
from fjord.server.sessions import Shared
from fjord.wire import Request


class Asker(Origin, Listener, Protocol):
    """Whose requests they are: the session."""


class OwnRequests:
    """What a session remembers of its client: who it is, and how many keys it listens to."""

    def __init__(self, session: Asker, shared: Shared) -> None:
        self._session = session
        self._shared = shared
        self._runner = shared.runner
        self._client_id = b""  # as HELLO said
        self._listened_keys = 0

    def handle(self, request: Request) -> None:
        command = request.command
        handler = OWN.get(type(command), OwnRequests._begin_listening)
        handler(self, request, command)

    def _refuse(self, request: Request, refusal: Refusal) -> None:
        self._session.answer(request, refusal)

    def _scan(self, request: Request, command: Scan | Span) -> None:
        self._runner.scan(self._session, request, command)

    def _stats(self, request: Request, command: Stats) -> None:
        self._runner.submit(self._session, request, Nop(), lambda reply: self._shared.stats())

    def _hello(self, request: Request, command: Hello) -> None:
        if command.revision != REVISION:
            self._refuse(request, _OTHER_REVISION)
            return
        client = command.client if any(command.client) else self._shared.new_client()
        self._client_id = client

        def welcome(reply: Reply) -> Reply:
            if not isinstance(reply, Done):
                return reply
            return Welcome(client=client, master=reply.master, version=self._shared.version)

        self._runner.submit(self._session, request, Nop(), welcome)

    def submit_numbered(self, request: Request, command: Any) -> None:
        """Runs a command with a number, which is applied once however often it is sent."""
        if request.number:
            if not self._client_id:
                self._refuse(request, _NO_HELLO)
                return
            client, number = self._client_id, request.number
            command = Numbered(command=command, client=client, number=number)
        if has_parting(command):  # which those have to hear of who read blocks
            self._shared.reads.begin(self._session, request, command)
        else:
            self._runner.submit(self._session, request, command)

    def _next(self, request: Request, command: Next) -> None:
        self._shared.jobs.waiting.begin(self._session, request, command)

    def _read(self, request: Request, command: Command) -> None:
        if request.number:
            self.submit_numbered(request, command)
            return
        self._shared.reads.begin(self._session, request, command)

    def _seal(self, request: Request, command: SealNow) -> None:
        sealer = self._shared.sealer
        if sealer is None:
            self._refuse(request, _NO_SEALER)
        else:
            sealer.seal(self._session, request, command)

    # -- listening --------------------------------------------------------------------------------

    def _listen(self, request: Request, command: Listen) -> None:
        problem = listen_problem(command) or self._reserve(len(command.keys))
        if problem is not None:
            self._refuse(request, problem)
            return
        self._runner.submit(self._session, request, Nop(), self._listen_after(request, command))

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

    def _begin_listening(self, request: Request, command: Set | Get | Touch) -> None:
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


_NO_HELLO: Final = Refusal(code=Code.BAD_BATCH, text="a number needs a HELLO before it")
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

# What a session does not simply hand to the committer, by the type of what was asked.
OWN: Final[dict[type, Callable[[OwnRequests, Request, Any], None]]] = {
    Refusal: OwnRequests._refuse,
    Batch: OwnRequests.submit_numbered,
    Hello: OwnRequests._hello,
    Stats: OwnRequests._stats,
    Listen: OwnRequests._listen,
    ListenJobs: OwnRequests._listen_jobs,
    Next: OwnRequests._next,
    Unlisten: OwnRequests._unlisten,
    Scan: OwnRequests._scan,
    Span: OwnRequests._scan,
    SealNow: OwnRequests._seal,
    **dict.fromkeys(ERRANDS | PARTINGS, OwnRequests._read),
}
