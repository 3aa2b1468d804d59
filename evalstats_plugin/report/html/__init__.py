"""Pages for browsers, one file each, without any request."""
