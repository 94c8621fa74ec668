"""silico_py."""
