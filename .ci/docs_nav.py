"""For mkdocs: puts every page of a folder that the navigation names (`decisions/`) into it."""

from pathlib import Path
from typing import Any


def on_config(config: Any) -> Any:
    """Called by mkdocs once its configuration is read."""
    folder = Path(config["docs_dir"])
    for tab in config["nav"]:
        for entries in tab.values():
            for entry in entries if isinstance(entries, list) else ():
                for title, target in entry.items():
                    if target.endswith("/"):
                        pages = sorted((folder / target).glob("*.md"))
                        entry[title] = [f"{target}{page.name}" for page in pages]
    return config
