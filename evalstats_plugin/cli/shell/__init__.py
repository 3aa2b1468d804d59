"""What commands share: options, reading, output, defaults, completion."""
