"""Commands and replies.

These records are the one language between all shells and the engine: a client builds a command,
`wire` carries it, `tables` decides it.  Every command is a batch; one entry is a batch of one.
Each is declared once, with all its facts, in the module of its noun, and is a name of this package;
`layout` says how, and `codec` makes bytes of them.
"""

from __future__ import annotations

from fjord.commands import compiled as _compiled  # noqa: F401 - gives each row its functions
from fjord.commands.codec import data_bytes as data_bytes
from fjord.commands.history import *
from fjord.commands.jobs import *
from fjord.commands.kv import *
from fjord.commands.layout import *
from fjord.commands.session import *
from fjord.commands.staging import *
from fjord.commands.streams import *
