"""The engine: one writer that decides, applies, appends, syncs and answers; and recovery."""

from fjord.engine.embedded import Embedded, EmbeddedReader
from fjord.engine.engine import Engine
from fjord.engine.opening import EngineSettings, open_engine
from fjord.engine.read_only import ReadOnlyEngine

__all__ = [
    "Embedded",
    "EmbeddedReader",
    "Engine",
    "EngineSettings",
    "ReadOnlyEngine",
    "open_engine",
]
