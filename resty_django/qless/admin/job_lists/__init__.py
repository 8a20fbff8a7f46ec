"""Lists of jobs, which many pages show: filters, sources in Redis, the search, rows and exports."""
