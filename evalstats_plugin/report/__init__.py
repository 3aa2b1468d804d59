"""What people see: the only code that formats."""
