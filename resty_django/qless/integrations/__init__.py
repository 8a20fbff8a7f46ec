"""Other task systems whose tasks run as jobs."""
