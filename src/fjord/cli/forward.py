"""`fjord forward`: sends a spool to a daemon."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated

from fjord.cli import arguments, output
from fjord.cli.arguments import loopback, option, seconds
from fjord.cli.output import Bar, usage
from fjord.client.address import parse_url
from fjord.client.spool.files import PERIOD_SECONDS
from fjord.errors import UsageError

if TYPE_CHECKING:
    from fjord.forwarder import Progress

_POLL_MIN, _POLL_MAX = 0.01, 3600.0


def forward(
    spool: Annotated[str, option("The directory of the spool.")],
    to: arguments.To = arguments.DAEMON,
    once: Annotated[bool, option("Exit when all present records are sent.", "--once")] = False,
    period: arguments.Period = PERIOD_SECONDS,
    poll: Annotated[
        float,
        option(
            "Check the files this often, in seconds, even without an event.",
            parser=seconds(_POLL_MIN, _POLL_MAX),
        ),
    ] = 1.0,
    wake: Annotated[
        str,
        option(
            "A port, or a loopback address with one, to listen on for writers' datagrams.",
            shown="off",
        ),
    ] = "",
    http: arguments.Http = "",
    log_format: arguments.LogForm = arguments.LogFormat.text,
    verbose: arguments.Verbose = False,
    as_json: arguments.Json = False,
) -> None:
    """Sends the records of a spool to a daemon, until SIGTERM or Ctrl-C.

    Each record arrives exactly once, and stays in its file until the daemon has it on disk. With
    --once it prints a summary; exit code 1 if records were set aside or are left, or if a file
    cannot be read.

    Example: fjord forward --spool /var/spool/fjord --to fjord://127.0.0.1:17994

    Example: fjord forward --spool /var/spool/fjord --once
    """
    from fjord import forwarder
    from fjord.server import logs

    with Bar("sending bytes") as bar:
        with usage():
            parse_url(to)
        if wake:
            arguments.wake_address(wake)
        if as_json and not once:
            raise UsageError("--json needs --once; without it, use --log-format json")
        options = forwarder.ForwardOptions(
            directory=spool,
            url=to,
            is_once=once,
            period=period,
            poll=poll,
            wake=wake,
            http=loopback(http) if http else None,
            on_ready=lambda at: None if once else arguments.say_ready(http=at),
            show=bar.update,
        )
        logs.set_up(log_format, logging.DEBUG if verbose else logging.INFO)
        progress, is_whole = forwarder.run(options)
    if once:
        _tell(progress, is_whole=is_whole, as_json=as_json)


def _tell(progress: Progress, *, is_whole: bool, as_json: bool) -> None:
    aside = progress.set_aside.total() + progress.refused.total()
    if as_json:
        output.print_json(
            {
                "records": progress.records,
                "bytes": progress.bytes,
                "batches": progress.batches,
                "retries": progress.retries,
                "set_aside": aside,
                "unopened": progress.unopened,
                "stopped": not is_whole,
            }
        )
    else:
        records = output.counted(progress.records, "record")
        text = f"{records} sent, {output.counted(progress.bytes, 'byte')}; {aside} set aside"
        if progress.unopened:
            text += f"; {output.counted(len(progress.unopened), 'file')} cannot be read"
        output.print_line(text if is_whole else f"{text}; stopped before the end")
    output.exit_if(aside or progress.unopened or not is_whole)
