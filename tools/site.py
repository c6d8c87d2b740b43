"""`python -m tools.site [FOLDER]`, run by `make site`: build the documentation as a static site.

The site is made from the Markdown of the repository, at the same paths, so that links that work in
the repository work on the site. Its navigation is made from the lists of docs/README.md and
docs/guides/README.md. A link or an anchor that leads nowhere stops the build. Pages load nothing
from other hosts. The search runs in the browser, also where the pages are opened as files, and
ranks guides before reference pages, and those before records of the past.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
"""Pages of the repository's folder, besides docs/."""

WORKER: Final = "assets/iframe-worker.js"
"""Path of a script on the site. The plugin `offline` would load one of this name elsewhere."""

BOOSTS: Final = (
    ("docs/guides/README.md", 1.0),
    ("docs/guides/", 8.0),
    ("docs/reports/", 0.02),
    ("docs/adr/", 0.02),
    ("CHANGELOG.md", 0.02),
)
"""Weights of pages in the search, by the start of their path; 1 for others."""

CONFIG: Final[dict[str, Any]] = {
    "site_name": "Keyhouse",
    "use_directory_urls": False,  # the files can be opened without a server
    "theme": {
        "name": "material",
        "font": False,
        "features": ["content.code.copy", "navigation.tabs", "navigation.top", "search.highlight"],
        "palette": [
            {
                "media": "(prefers-color-scheme: light)",
                "scheme": "default",
                "primary": "indigo",
                "toggle": {"icon": "material/weather-night", "name": "Dark"},
            },
            {
                "media": "(prefers-color-scheme: dark)",
                "scheme": "slate",
                "primary": "indigo",
                "toggle": {"icon": "material/weather-sunny", "name": "Light"},
            },
        ],
    },
    "plugins": ["search", "offline"],
    "extra": {"polyfills": [WORKER]},
    "markdown_extensions": [
        "tables",
        "sane_lists",
        {"toc": {"permalink": True}},
        {"pymdownx.highlight": {"use_pygments": True}},
        "pymdownx.superfences",
    ],
    "validation": {
        "nav": {"omitted_files": "ignore", "not_found": "warn", "absolute_links": "warn"},
        "links": {
            "not_found": "warn",
            "anchors": "warn",
            "absolute_links": "warn",
            "unrecognized_links": "warn",
        },
    },
}


def navigation(docs: Path) -> list[Any]:
    """Return the navigation: the sections of docs/README.md, and the guides by their sections."""
    sections: list[Any] = [{"Home": "README.md"}]
    sections += [
        {title: [{name: path} for name, path in pages]}
        for title, pages in _sections(docs / "README.md", "docs")
    ]
    guides = [
        {title: [{name: path} for name, path in pages]}
        for title, pages in _sections(docs / "guides" / "README.md", "docs/guides")
    ]
    return [*sections[:2], {"Guides": ["docs/guides/README.md", *guides]}, *sections[2:]]


def _sections(page: Path, folder: str) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the titles and links of the lists of a page: `Learn:`, an empty line, a list."""
    found = []
    for part in re.split(r"\n(?=\w[^\n]*:\n\n- )", page.read_text())[1:]:
        title = part.partition(":\n")[0].partition(",")[0].replace("`", "")
        links = re.findall(r"^- \[([^]]+)\]\(([^)#]+\.md)\)", part, re.MULTILINE)
        pages = [(name, os.path.normpath(f"{folder}/{path}")) for name, path in links]
        found.append((title, [each for each in pages if not each[1].endswith("guides/README.md")]))
    return found


def copy_pages(target: Path) -> None:
    """Copy the Markdown, the pictures, and files that pages link to, at their paths in the
    repository."""
    target.mkdir(parents=True)
    for name in (*PAGES, "LICENSE"):
        shutil.copy(ROOT / name, target / name)
    shutil.copytree(ROOT / "docs", target / "docs")
    for page in (ROOT / "systems").glob("**/*.md"):
        copy = target / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(page, copy)
    (target / WORKER).parent.mkdir()
    shutil.copy(Path(__file__).with_name("iframe-worker.js"), target / WORKER)
    for page in [*target.rglob("*.md")]:
        path = page.relative_to(target).as_posix()
        boost = next((boost for start, boost in BOOSTS if path.startswith(start)), 1.0)
        page.write_text(f"---\nsearch:\n  boost: {boost}\n---\n\n{page.read_text()}")
        for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            linked = (page.parent / link).resolve()
            if not linked.is_relative_to(target.resolve()) or linked.exists():
                continue
            source = ROOT / linked.relative_to(target.resolve())
            if source.is_file():
                linked.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, linked)


def build(folder: Path) -> None:
    """Build the site into a folder, which is replaced; CalledProcessError if a link is broken."""
    with tempfile.TemporaryDirectory() as made:
        copy_pages(Path(made) / "pages")
        config = CONFIG | {
            "docs_dir": str(Path(made) / "pages"),
            "site_dir": str(folder.absolute()),
            "nav": navigation(ROOT / "docs"),
        }
        import yaml  # type: ignore[import-untyped]  # a dependency of MkDocs

        file = Path(made) / "mkdocs.yml"
        text = yaml.safe_dump(config, sort_keys=False)
        slugs = "!!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}"
        file.write_text(text.replace("permalink: true", f"permalink: true\n    slugify: {slugs}"))
        subprocess.run(
            [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-f", str(file)],
            check=True,
            env=os.environ | {"NO_MKDOCS_2_WARNING": "true", "PYTHONWARNINGS": "ignore"},
        )


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site"
    try:
        build(folder)
    except subprocess.CalledProcessError:
        sys.exit("The site was not built: correct the links above.")
    print(f"The site is in {folder}: open {folder / 'index.html'}")


if __name__ == "__main__":
    main()
