"""The HTML report: one file, without any request.

* `page`: the whole page; `board`: its sentences and numbers; `parts`: tables, items, texts
* ``page.jinja``, ``page.css``, ``page.js``: template, style sheet and script of the page
"""
