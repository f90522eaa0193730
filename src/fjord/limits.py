"""Every bound of Fjord, each with its reason.  0 never means unlimited."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB
# Files are read and copied so much at a time: less costs more calls, and more only memory.
CHUNK_BYTES = 1 * MIB

# -- entries --------------------------------------------------------------------------------------
# LMDB takes keys of 511 bytes; table id, probe and room for later prefixes leave 480.
KV_KEY_BYTES_MAX = 480
# One value must fit many times into a frame and into a connection's buffer.
VALUE_BYTES_MAX = 1 * MIB
# A file name is never made from a table name, but it is shown in paths, logs and SQL.
NAME_BYTES_MAX = 128
# Settings are read with the list of all tables, at every start.
SETTINGS_BYTES_MAX = 32 * KIB
# A batch is decided in one go while everyone else waits: 8 MiB is some tens of milliseconds.
BATCH_BYTES_MAX = 8 * MIB
BATCH_ROWS_MAX = 100_000
TABLES_MAX = 10_000
# Per table; beyond this the current one continues until another one has drained.  All are examined
# whenever jobs come or go: a month of hours takes some hundred microseconds.
GENERATIONS_MAX = 744
TAKEOVERS_MAX = 1_000_000
# Values with persist=0 live in memory only; beyond this they are refused, never swapped.
VOLATILE_BYTES_MAX = 256 * MIB
# Locks live in memory, with the connections that hold them.
LOCKS_MAX = 100_000
# One value may be found under its own key and this many others.
ALSO_MAX = 16
# Further keys of one table that are kept in memory, some 300 bytes each.
LINKS_MAX = 1_000_000
# A range or a match examines this many entries before it answers with what it has found, so that
# others wait for some milliseconds at most.
EXAMINED_ENTRIES_MAX = 2_000
PAGE_ENTRIES_MAX = 1_000
PAGE_BYTES_MAX = 1 * MIB
REGEX_BYTES_MAX = 256
# RE2 takes at worst some 15 ns for each byte of a key and each step of the compiled expression:
# one key then takes less than 8 ms, and one page less than 20 ms.
REGEX_STEPS_MAX = 1_000
REGEX_WORK_MAX = 500_000
# Compiled expressions that are kept, and the maximum memory of each.
REGEX_KEPT = 16
REGEX_MEMORY_BYTES = 1 * MIB
# A tombstone outlives every older write that may still be on its way from a spool.
TOMBSTONE_US = 7 * 24 * 3600 * 1_000_000
# The measured overhead of an entry in Python, beside its bytes.
VOLATILE_ENTRY_BYTES = 400
# Client clocks decide which write is the last one, so a clock far ahead would win for ever.
TIMESTAMP_AHEAD_US_MAX = 60 * 1_000_000
# The year 2001: milliseconds or seconds of today are below it, and would lose to every write.
TIMESTAMP_US_MIN = 10**15
EXPIRY_AHEAD_US_MAX = 30 * 24 * 3600 * 1_000_000

# -- jobs -----------------------------------------------------------------------------------------
# The index has a hash of it; this is enough for any URI that a browser sends.
JOB_KEY_BYTES_MAX = 1024
DOMAIN_BYTES_MAX = 255
# A worker that takes more at once takes longer to finish them than others want to wait.
NEXT_COUNT_MAX = 10_000
NEXT_BYTES_MAX = 8 * MIB
LEASE_US_MIN = 1_000
LEASE_US_MAX = 30 * 24 * 3600 * 1_000_000
# The counter has one byte, and must hold one more than the maximum.
TIMEOUTS_MAX = 254
PROCESS_AHEAD_US_MAX = 366 * 24 * 3600 * 1_000_000
WAIT_US_MAX = 3600 * 1_000_000
REASON_BYTES_MAX = 1 * KIB
# Domains with waiting jobs, per table with fairness: each takes some 300 bytes of memory.
LANES_MAX = 1_000_000
# Taken jobs per table that merges: the key of each takes some 130 bytes of memory.
TAKEN_MAX = 1_000_000
# A wait for a date checks the wall clock at least this often, since it may have been set.
WALL_LOOK_SECONDS_MAX = 30.0

# -- streams --------------------------------------------------------------------------------------
# A reader that wants more asks again; this much is read and sent while others wait.
READ_COUNT_MAX = 100_000
READ_BYTES_MAX = 8 * MIB
# Names of subscribers follow the rule for those of tables.
SUBSCRIBERS_MAX = 1_000_000
# A snapshot keeps what is replaced meanwhile; each read through one examines all newer ones.
SNAPSHOTS_MAX = 256
SNAPSHOT_US_MAX = 15 * 60 * 1_000_000
# A block is sorted and compressed in memory, a part at a time; more rows are more blocks.
BLOCK_ROWS_MAX = 16 * 1024 * 1024
BLOCK_PART_ROWS = 128 * 1024
BLOCK_PART_BYTES = 16 * MIB
BLOCK_AGE_US_MAX = 366 * 24 * 3600 * 1_000_000
RETENTION_US_MAX = 100 * 366 * 24 * 3600 * 1_000_000
# Memory for the parts of blocks that subscribers are reading, or will read next.
COLD_BYTES_MAX = 64 * MIB
# Tables with little in a segment wait for this many full ones, so that blocks are not too small.
SEAL_SEGMENTS = 4
# How much of the journal is written to blocks by one child process.
SEAL_BYTES_MAX = 256 * MIB
BLOCKS_LISTED_MAX = 1_000
# Blocks replaced by one; and how long their files stay for readers that have begun to read them.
BLOCKS_REPLACED_MAX = 1_000
REPLACED_KEPT_US = 3600 * 1_000_000

# -- staged rows ----------------------------------------------------------------------------------
# Uncommitted stages are dropped after this time, or up to an hour later.
STAGE_US_MAX = 6 * 3600 * 1_000_000
# Per commit.  The stages of a log are named in one frame.
STAGES_MAX = 16 * 1024
# Jobs and values are written a stage at a time; more rows of one would let all others wait.
SLICE_ROWS_MAX = 10_000
# Writers of numbered batches; one that has written nothing for long is forgotten.
WRITERS_MAX = 1_000_000
WRITER_BYTES_MAX = 128
# A batch whose writer has begun to commit it is finished without it after this time, or up to an
# hour later.
COMMIT_IDLE_US = 10 * 60 * 1_000_000
# A writer of a single batch is kept in case the batch is sent again soon.
WRITER_ONCE_KEPT_US = 24 * 3600 * 1_000_000
WRITER_KEPT_US = 366 * 24 * 3600 * 1_000_000

# -- clients that retry ---------------------------------------------------------------------------
# Commands of one batch; each may itself have many rows.
BATCH_COMMANDS_MAX = 10_000
# Answers kept per client, so that a retry is applied once: as many as it may have in
# flight.
ANSWERS_KEPT = 256
ANSWER_KEPT_BYTES_MAX = 64 * KIB
CLIENT_KEPT_US = 24 * 3600 * 1_000_000

# -- journal --------------------------------------------------------------------------------------
# One commit.  Sixteen times smaller than the 512 MiB at which 32-bit columns would matter.
FRAME_BYTES_MAX = 32 * MIB
# Small enough to be read whole at start-up, large enough that rotation is rare.
SEGMENT_BYTES = 64 * MIB
SEGMENT_BYTES_MIN = 64 * KIB
# Offsets inside a segment are 32-bit in the index.
SEGMENT_BYTES_MAX = 1024 * MIB
# Recently read values stay in memory up to this size; the page cache holds the rest.
VALUE_CACHE_BYTES = 32 * MIB
# The share of a segment that only deletes may use if the disk has no room for two more segments.
RESERVED_SHARE = 2
# Space that is freed for a start on a full disk.
BALLAST_BYTES = 256 * KIB
# Packing begins when the journal is this many times as large as its live bytes, beyond two
# segments; and it examines this much at a time between two groups of commands.
PACK_RATIO = 2.0
PACK_SLICE_BYTES = 256 * KIB
# Due work (expiry, sweeping) is done in steps of this many rows.
UPKEEP_ROWS = 1000
# Open file descriptors for payload reads.
SEGMENT_FILES_OPEN_MAX = 64
# If more segments are missing between two others, one of them is not of this journal.
SEGMENTS_MISSING_MAX = 1000

# -- index ----------------------------------------------------------------------------------------
# The LMDB file is allocated in steps before it is used, so a full disk is never a SIGBUS.
INDEX_STEP_BYTES = 64 * MIB
INDEX_BYTES_MAX = 1024 * 1024 * MIB
# Writes of a rebuild are collected, sorted and committed in batches of this many rows.
REBUILD_ROWS = 500_000

# -- server ---------------------------------------------------------------------------------------
# The largest message: a batch, its columns of offsets and its header.
MESSAGE_BYTES_MAX = BATCH_BYTES_MAX + 4 * MIB
# An answer is built in memory before it is sent; larger results are requested in pieces.
ANSWER_BYTES_MAX = 32 * MIB
IN_FLIGHT_MAX = 256
# Requests of one connection that are decoded and not answered.
IN_FLIGHT_BYTES_MAX = 16 * MIB
# Above this a session is not read from until its peer has read its replies.
OUTPUT_BYTES_MAX = 8 * MIB
# Small commands that wait at the same time are decided as one; for large ones that saves nothing.
MERGED_ROWS_MAX = 8
MERGED_BYTES_MAX = 4 * KIB
# A group is one frame and one fsync; bounded so that no client waits behind an endless one.
GROUP_COMMANDS_MAX = 1024
# Slow commands make a group smaller: none begins later than this in a group.
GROUP_US_MAX = 50_000
# How long requests of one connection are processed before others have their turn; and after how
# many received bytes they have it in any case.
PUMP_US_MAX = 2_000
PUMP_BYTES_MAX = 64 * KIB
# Up to this much is synced on the loop's own thread, if only one client waits for it.
INLINE_SYNC_BYTES_MAX = 64 * KIB
CONNECTIONS_MAX = 10_000
# Replies up to this size together are sent as one piece.
JOINED_BYTES_MAX = 64 * KIB
# How long the daemon waits for another request before it sleeps: about as long as a client needs to
# read a reply and to write the next request.
AWAKE_US = 150
AWAKE_US_MAX = 10_000
# A message that has begun must end within this time.
MESSAGE_SECONDS_MAX = 10.0
# A connection without requests and listenings is closed after this time.
IDLE_SECONDS_MAX = 300.0
# Running requests and unread replies, of all connections together; above it requests are answered
# with BUSY.
SERVER_MEMORY_BYTES_MAX = 512 * MIB
# Keys that one connection listens to.
LISTENED_KEYS_MAX = 10_000
HTTP_REQUEST_BYTES_MAX = 8 * KIB
HTTP_CONNECTIONS_MAX = 32
STOP_SECONDS_MAX = 10.0
# The overhead of a running request beside its bytes: the records that it is decoded into.
REQUEST_KEPT_BYTES = 1 * KIB
# A connection that keeps less than this, of output or of a half message, is not counted.
KEPT_NOTED_BYTES = 4 * KIB
# Files that are not connections: segments, index, HTTP, the log; connections get the rest.
FILES_RESERVED = 160
# An fsync that takes longer than this is worth a line in the log.
SLOW_SYNC_US = 1_000_000
# Lines of one kind that are logged in this many seconds; further lines are only counted.
LOG_LINES_MAX = 10
LOG_WINDOW_SECONDS = 10.0
# Characters of a field in the log.
LOG_FIELD_CHARACTERS_MAX = 300

# -- the spool ------------------------------------------------------------------------------------
# Files that a forwarder has open; the rest wait for their turn.
SPOOL_FILES_OPEN_MAX = 32

# -- readers --------------------------------------------------------------------------------------
SCAN_BYTES_MAX = 4 * MIB
# A table with few rows in a long journal: the scan returns after this much, and can be continued.
SCAN_EXAMINED_BYTES_MAX = 64 * MIB
# A read-only process waits this long for the writer's fsync before it gives up.
DURABLE_WAIT_SECONDS_MAX = 10.0
REPLY_SECONDS_MAX = 30.0
CONNECT_SECONDS_MAX = 5.0
# A client that lost its connection retries after 50 ms, then after twice as long each time, up to
# 2 s, until its timeout.
RECONNECT_SECONDS_FIRST = 0.05
RECONNECT_SECONDS_MAX = 2.0
