"""The HTML report: one file, without any request.

* `page`: the whole page; `parts`: its tables, items and figures; `table`: tables and markup
* ``page.css``, ``page.js``: style sheet and script, which are written into the page
"""
