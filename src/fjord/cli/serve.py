"""`fjord serve`: the daemon."""

from __future__ import annotations

import logging
from typing import Annotated

from fjord import limits
from fjord.cli import arguments
from fjord.cli.arguments import loopback, option
from fjord.cli.output import Bar
from fjord.errors import UsageError

Blocks = Annotated[
    str,
    option(
        "Where cold blocks are: a folder, or a URL such as s3://bucket/blocks.",
        "--blocks",
        envvar=arguments.BLOCKS_VARIABLE,
        shown="blocks in the data directory",
    ),
]


def serve(
    data: Annotated[str, option("The data directory; created if missing.")],
    listen: Annotated[
        str, option("Loopback address and port, or a port alone.")
    ] = "127.0.0.1:17994",
    blocks_: Blocks = "",
    http: arguments.Http = "",
    idle_seconds: Annotated[
        float, option("Close connections that are idle this long.", min=0.1)
    ] = limits.IDLE_SECONDS_MAX,
    message_seconds: Annotated[
        float, option("Close connections that take longer to send a message.", min=0.1)
    ] = limits.MESSAGE_SECONDS_MAX,
    memory_mib: Annotated[
        int, option("Memory for requests and replies; beyond it clients get BUSY.", min=16)
    ] = limits.SERVER_MEMORY_BYTES_MAX // limits.MIB,
    max_connections: Annotated[
        int, option("Connections at a time; further ones get BUSY.", min=1)
    ] = limits.CONNECTIONS_MAX,
    awake_us: arguments.Awake = None,
    wake: Annotated[
        str,
        option(
            "Where to send a datagram when a table has work: loopback addresses with ports, or "
            "ports alone, separated by commas.",
            shown="off",
        ),
    ] = "",
    log_format: arguments.LogForm = arguments.LogFormat.text,
    verbose: arguments.Verbose = False,
) -> None:
    """Serves a data directory until SIGTERM or Ctrl-C.

    Example: fjord serve --data /var/lib/fjord --listen 127.0.0.1:17994
    """
    from fjord.engine import EngineSettings
    from fjord.server import daemon, logs, service
    from fjord.server.bounds import Bounds

    with Bar("rebuilding the index") as bar:
        if not data:
            raise UsageError("give a directory with --data")
        arguments.check_directory(data)
        host, port = loopback(listen)
        options = daemon.DaemonOptions(
            data=data,
            host=host,
            port=port,
            http=loopback(http) if http else None,
            wake=arguments.wake_addresses(wake),
            blocks=blocks_,
            settings=EngineSettings(progress=bar.update),
            bounds=Bounds(
                idle_seconds=idle_seconds,
                message_seconds=message_seconds,
                memory_bytes=memory_mib * limits.MIB,
                connections=max_connections,
            ),
            awake_us=service.default_awake_us() if awake_us is None else awake_us,
            on_ready=lambda at, http_at: _ready(bar, at, http_at),
        )
        logs.set_up(log_format, logging.DEBUG if verbose else logging.INFO)
        daemon.serve(options)


def _ready(bar: Bar, at: tuple[str, int], http_at: tuple[str, int] | None) -> None:
    bar.stop()
    arguments.say_ready(fjord=at, http=http_at)
