"""The spool: writes that wait in local files until a forwarder has sent them; docs/spool.md.

records    one write each, as bytes, and the commands that they are sent as
files      the files that hold them, line by line
writer     `fjord.spool`: adds records
reader     hands records to `fjord.forwarder`, and erases what has arrived
bell       how a writer wakes the forwarder
survey     what waits, what was set aside, and what somebody has to look at
"""
