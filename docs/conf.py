"""The site of the documentation: `make docs` builds it in `var/docs`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import django

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "docs" / "_ext")]
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
django.setup()

import resty_django  # noqa: E402

project = "resty-django"
author = "The authors of resty-django"
copyright = "the authors of resty-django"
version = release = resty_django.__version__

extensions = ["myst_parser", "sphinx_design", "sphinx_copybutton", "pages", "reference", "core_commands", "members"]
exclude_patterns = ["_ext", "_static"]
myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4
nitpicky = True
suppress_warnings = ["misc.highlighting_failure"]  # JSON with comments, shell prompts in text
highlight_language = "none"

html_theme = "furo"
html_title = f"resty-django {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"
