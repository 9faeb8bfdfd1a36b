"""Sphinx's configuration: `make docs` builds docs/_build/html. It is run from the checkout's root."""

from __future__ import annotations

from sphinx.application import Sphinx

from docs.reference_pages import write_pages
from docs.reference_pages.project_pages import rewrite_links
from txbroker import __version__

write_pages()

project = "txbroker"
copyright = "the txbroker authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.githubpages"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4  # as on GitHub: a heading's text, in lower case and with dashes
nitpicky = True
highlight_language = "text"

html_theme = "furo"
html_title = f"txbroker {__version__}"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}


def setup(app: Sphinx) -> None:
    """Links of a page are rewritten when Sphinx reads it."""

    def read(app: Sphinx, page: str, source: list[str]) -> None:
        source[0] = rewrite_links(f"{page}.md", source[0])

    app.connect("source-read", read)
