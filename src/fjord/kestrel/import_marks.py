"""What a daemon knows of imports: asked for, so that no command imports what another one has.

    by directory  how far `fjord kestrel import` is with a queue of a directory, and a table
    by files      the same, wherever these files are; `fjord pipeline kestrel-import` notes it, too
    by batch      a writer of the table: what `fjord pipeline kestrel-import` has written to it

`importing` has their names.
"""

from __future__ import annotations

from fjord.client.calls import Call, expect
from fjord.client.node_calls import table_call
from fjord.client.socket import Connection
from fjord.commands import Advance, AskWriter, Committed, Refusal
from fjord.errors import Code, NotFoundError
from fjord.kestrel.importing import UNKNOWN


def table_id(daemon: Connection, table: str) -> int | None:
    """Returns the id of a table, None if it is not there."""
    call = table_call(table)
    try:
        return call.result(daemon.execute(call.command)).id
    except NotFoundError:
        return None


def ask(daemon: Connection, writer: str, table: str = "") -> int:
    """Returns where a writer is, of a table or of none; UNKNOWN if it is nowhere."""
    call = Call(AskWriter(table=table, writer=writer), lambda reply: expect(reply, Committed).batch)
    return call.result(daemon.execute(call.command))


def note(daemon: Connection, writer: str, done: int) -> None:
    """Ensures that there is a mark; one that is there stays as it is."""
    reply = daemon.execute(Advance(writer=writer, expected=UNKNOWN, batch=done))
    if isinstance(reply, Refusal) and reply.code is not Code.STALE_NUMBER:
        raise reply.error()
