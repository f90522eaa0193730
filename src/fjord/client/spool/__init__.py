"""The spool: writes that wait in local files until a forwarder has sent them; docs/spool.md.

tables -> spool -> lines -> files          the writer's side
files -> lines -> batching                 the forwarder's, which is `fjord.client.forwarder`
waking, alerts, survey                     who is told what
"""
