"What the book asks of Sphinx beside its settings."


def own_scripts_only(app, pagename, templatename, context, doctree):
    "A page without the scripts of sphinx-thebe, which would fetch code from elsewhere to run cells; nothing is run here."
    said = lambda s: f"{getattr(s, 'filename', s) or ''} {getattr(s, 'attributes', {}).get('body', '')}"
    for kind in ("script_files", "css_files"): context[kind] = [s for s in context.get(kind, []) if "thebe" not in said(s).lower()]


def setup(app):
    app.connect("html-page-context", own_scripts_only, priority=900)
    return dict(version="1", parallel_read_safe=True, parallel_write_safe=True)
