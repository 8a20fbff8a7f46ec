"""Arguments of limits: rates as text, and validation with errors that name the wrong argument. Pure."""
