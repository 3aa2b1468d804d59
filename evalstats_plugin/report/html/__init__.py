"""The HTML report: one file, without any request.

* `page`: the whole page; `parts`: its tables, items and figures
* ``page.jinja``, ``page.css``, ``page.js``: template, style sheet and script of the page
"""
