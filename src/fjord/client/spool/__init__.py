"""The spool: writes that wait in local files until a forwarder has sent them; docs/spool.md.

tables -> record -> lines -> spool -> appender         the writer's side
files -> reading -> batching -> sources                the forwarder's, `fjord.client.forwarder`
waking                                                 how the one wakes the other
alerts, survey, rows, retrying                         what people see of it, and do about it
"""
