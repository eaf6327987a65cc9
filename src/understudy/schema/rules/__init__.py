"""What is known about combinations of columns: declared, over codes, and over decoded rows."""
