"""The write-up of a run: its source, the functions that it calls, and its rendering with or without Quarto."""
