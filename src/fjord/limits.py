"""Every bound of Fjord, each with its reason.  0 never means unlimited."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

# -- entries ------------------------------------------------------------------------------------
# LMDB takes keys of 511 bytes; table id, probe and room for later prefixes leave 480.
KV_KEY_BYTES_MAX = 480
# One value must fit many times into a frame and into a connection's buffer.
VALUE_BYTES_MAX = 1 * MIB
# A file name is never made from a table name, but it is shown in paths, logs and SQL.
NAME_BYTES_MAX = 128
# A batch is decided in one go while everyone else waits: 8 MiB is some tens of milliseconds.
BATCH_BYTES_MAX = 8 * MIB
BATCH_ROWS_MAX = 100_000
TABLES_MAX = 10_000
TAKEOVERS_MAX = 1_000_000
# Values with persist=0 live in memory only; beyond this they are refused, never swapped.
VOLATILE_BYTES_MAX = 256 * MIB
# What Python needs for an entry beside its bytes, measured.
VOLATILE_ENTRY_BYTES = 400
# Client clocks decide which write is the last one, so a clock far ahead would win for ever.
TIMESTAMP_AHEAD_US_MAX = 60 * 1_000_000
EXPIRY_AHEAD_US_MAX = 30 * 24 * 3600 * 1_000_000

# -- journal ------------------------------------------------------------------------------------
# One commit.  Sixteen times smaller than the 512 MiB at which 32-bit columns would matter.
FRAME_BYTES_MAX = 32 * MIB
# Small enough to be read whole at start-up, large enough that rotation is rare.
SEGMENT_BYTES = 64 * MIB
SEGMENT_BYTES_MIN = 64 * KIB
# Offsets inside a segment are 32-bit in the index.
SEGMENT_BYTES_MAX = 1024 * MIB
# Open file descriptors for payload reads.
SEGMENT_FILES_OPEN_MAX = 64

# -- index --------------------------------------------------------------------------------------
# The LMDB file is allocated in steps before it is used, so a full disk is never a SIGBUS.
INDEX_STEP_BYTES = 64 * MIB
INDEX_BYTES_MAX = 1024 * 1024 * MIB
# Writes of a rebuild are gathered, sorted and committed in lumps of this many rows.
REBUILD_ROWS = 500_000

# -- server -------------------------------------------------------------------------------------
# The largest message: a batch, its columns of offsets and its header.
MESSAGE_BYTES_MAX = BATCH_BYTES_MAX + 4 * MIB
# An answer is built in memory before it is sent; whoever wants more asks in pieces.
ANSWER_BYTES_MAX = 32 * MIB
IN_FLIGHT_MAX = 256
# Requests of one connection that are decoded and not answered.
IN_FLIGHT_BYTES_MAX = 16 * MIB
# Above this a session is not read from until its peer has taken its replies.
OUTPUT_BYTES_MAX = 8 * MIB
# A group is one frame and one fsync; bounded so that no client waits behind an endless one.
GROUP_COMMANDS_MAX = 4096
# Up to this much is synced on the loop's own thread, if only one client waits for it.
INLINE_SYNC_BYTES_MAX = 64 * KIB
CONNECTIONS_MAX = 10_000
# How long the daemon looks for another request before it sleeps: about what a client needs to
# read a reply and to write the next request.
AWAKE_US = 150
AWAKE_US_MAX = 10_000
# A message that has begun must end within this time.
MESSAGE_SECONDS_MAX = 10.0
STOP_SECONDS_MAX = 10.0

# -- readers ------------------------------------------------------------------------------------
SCAN_BYTES_MAX = 4 * MIB
# A table with few rows in a long journal: the scan comes back, and goes on when asked again.
SCAN_EXAMINED_BYTES_MAX = 64 * MIB
# A read-only process waits this long for the writer's fsync before it gives up.
DURABLE_WAIT_SECONDS_MAX = 10.0
REPLY_SECONDS_MAX = 30.0
CONNECT_SECONDS_MAX = 5.0
