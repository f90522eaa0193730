"""Commands and replies: what may be asked of Fjord, and what it answers.

These records are the one language between all shells and the engine: a client builds a command,
`wire` carries it, `tables` decides it.  Every command is a batch; one entry is a batch of one.
Each is declared once, with all its facts, in the module of its noun; `layout` says how, and
`codec` makes bytes of them.
"""

from __future__ import annotations

from typing import NamedTuple

from fjord import limits
from fjord.commands import compiled as _compiled  # noqa: F401 - gives each row its functions
from fjord.commands.codec import data_bytes
from fjord.commands.history import (
    BlockList,
    ListBlocks,
    ReplaceBlocks,
    Scan,
    Scanned,
    ScannedArrow,
    SealNow,
    Span,
    Spanned,
)
from fjord.commands.jobs import (
    ARRIVED,
    DUE,
    Acted,
    Bury,
    Cancel,
    CountJobs,
    Discard,
    Extend,
    Fail,
    Find,
    Finish,
    JobPage,
    ListenJobs,
    Next,
    Peek,
    Push,
    Reschedule,
    Revive,
    Taken,
)
from fjord.commands.kv import (
    Change,
    Delete,
    Entries,
    Get,
    Listen,
    Lock,
    Modify,
    Page,
    Range,
    Rename,
    Set,
    Touch,
    Unlisten,
    Unlock,
)
from fjord.commands.layout import (
    FUNCTIONS,
    KINDS,
    Command,
    Flag,
    InBatch,
    Reply,
    Retry,
    Row,
)
from fjord.commands.session import (
    DEFAULT_TABLE,
    REVISION,
    Batch,
    CreateTable,
    Done,
    DropTable,
    Hello,
    ListTables,
    Nop,
    Numbered,
    Numbers,
    Refusal,
    Replies,
    Stats,
    TableList,
    Use,
    Welcome,
    name_problem,
)
from fjord.commands.staging import (
    WRITER_ONCE,
    Advance,
    AskWriter,
    CommitStages,
    Committed,
    Stage,
)
from fjord.commands.streams import (
    Acknowledge,
    Append,
    AsOf,
    CloseSnapshot,
    Erase,
    InBlock,
    Lag,
    ListSubscribers,
    Messages,
    Opened,
    OpenSnapshot,
    Position,
    Read,
    Rest,
    Seek,
    Subscribe,
    Subscribers,
    Unsubscribe,
)

__all__ = [
    "ARRIVED",
    "DEFAULT_TABLE",
    "DUE",
    "FUNCTIONS",
    "KINDS",
    "REVISION",
    "WRITER_ONCE",
    "Acknowledge",
    "Acted",
    "Advance",
    "Append",
    "AsOf",
    "AskWriter",
    "Batch",
    "BlockList",
    "Bury",
    "Cancel",
    "Change",
    "Changed",
    "CloseSnapshot",
    "Command",
    "CommitStages",
    "Committed",
    "CountJobs",
    "CreateTable",
    "Delete",
    "Discard",
    "Done",
    "DropTable",
    "Entries",
    "Erase",
    "Extend",
    "Fail",
    "Find",
    "Finish",
    "Flag",
    "Get",
    "Hello",
    "InBatch",
    "InBlock",
    "JobPage",
    "Lag",
    "ListBlocks",
    "ListSubscribers",
    "ListTables",
    "Listen",
    "ListenJobs",
    "Lock",
    "Messages",
    "Modify",
    "Next",
    "Nop",
    "Numbered",
    "Numbers",
    "OpenSnapshot",
    "Opened",
    "Page",
    "Peek",
    "Position",
    "Push",
    "Range",
    "Read",
    "Refusal",
    "Rename",
    "ReplaceBlocks",
    "Replies",
    "Reply",
    "Reschedule",
    "Rest",
    "Retry",
    "Revive",
    "Row",
    "Scan",
    "Scanned",
    "ScannedArrow",
    "SealNow",
    "Seek",
    "Set",
    "Span",
    "Spanned",
    "Stage",
    "Stats",
    "Subscribe",
    "Subscribers",
    "TableList",
    "Taken",
    "Touch",
    "Unlisten",
    "Unlock",
    "Unsubscribe",
    "Use",
    "Welcome",
    "name_problem",
    "reply_bytes",
]


def reply_bytes(reply: Reply) -> int:
    """Returns about how many bytes a reply has; one that is still in a block, at most."""
    if type(reply) is Replies:
        return sum(map(reply_bytes, reply.replies))
    return limits.READ_BYTES_MAX if type(reply) is InBlock else data_bytes(reply)


class Changed(NamedTuple):
    """What a listener is told: a key of a table has this value now.

    Of a jobs table: the key is empty, the value the string `ARRIVED` or `DUE`, and the timestamp
    the moment.
    """

    table: str
    key: bytes
    type: int  # Entries.MISSING: it is gone
    value: bytes
    timestamp_us: int
    expires_at_us: int
