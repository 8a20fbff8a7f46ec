"""Workers: their list, their pages, and remote control."""
