from __future__ import annotations
from pathlib import Path
from rich.console import Console


def tell(url: str, directory: Path, *, events: int, console: Console) -> None:
    pass
