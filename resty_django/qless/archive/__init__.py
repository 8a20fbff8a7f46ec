"""The archive of finished jobs in the site's database: rows, the writer and its thread, retention and search."""
