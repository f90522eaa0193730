"""Simulated worlds, public: a disk that forgets and a clock that obeys.

disk = SimDisk(seed=7)
engine = open_engine("/data", Settings(disk=disk, clock=SimClock(), indexes=...))
disk.power_cut()        # forgets, tears and reorders what was not synced
"""

from fjord.testing.disk import SimClock, SimCrash, SimDisk

__all__ = ["SimClock", "SimCrash", "SimDisk"]
