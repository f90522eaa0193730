"""Simulated parts for tests, public: a disk that loses unsynced data, and a manual clock.

disk = SimDisk(seed=7)
engine = open_engine("/data", EngineSettings(disk=disk, clock=SimClock(), indexes=...))
disk.power_cut()        # loses, tears and reorders what was not synced
"""

from fjord.testing.clock import SimClock
from fjord.testing.disk import SimCrash, SimDisk

__all__ = ["SimClock", "SimCrash", "SimDisk"]
