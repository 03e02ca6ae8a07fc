"""Settings of the documentation: `python3 run.py docs`."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

project = "loopring_lab"
extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "pages",
]
exclude_patterns = ["_build"]
html_theme = "pydata_sphinx_theme"
html_title = project
# They are of no section.
without_sidebar = ("index", "start", "gallery", "changelog", "search")
html_sidebars: dict[str, list[str]] = {page: [] for page in without_sidebar}
html_static_path = ["_static"]
html_css_files = ["site.css"]
# The reference has a line for each module.
html_domain_indices = False
html_show_sourcelink = False
html_show_copyright = False
html_theme_options = {
    "show_prev_next": False,
    "header_links_before_dropdown": 4,
    "navigation_with_keys": False,
}
# The saved outputs, which nbval keeps true; only the gallery is run.
nb_execution_mode = "off"
nb_execution_raise_on_error = True
nb_execution_timeout = 240
# Nothing is loaded from elsewhere; notebooks have saved copies of widgets.
nb_ipywidgets_js: dict[str, object] = {}
myst_heading_anchors = 3
add_module_names = False
autodoc_default_options = {
    "members": True,
    "undoc-members": True,
    "inherited-members": True,
    "no-value": True,  # the repr of a choice has an address
}
# The docstrings say them in words.
autodoc_typehints = "none"
# Of a module's page.
templates_path = ["_templates"]
# Modules list names that are defined in modules of their own.
autosummary_imported_members = True
numpydoc_show_class_members = False
copybutton_prompt_text = ">>> "
suppress_warnings = ["misc.highlighting_failure"]
# Code and names are copied from here.
smartquotes = False
