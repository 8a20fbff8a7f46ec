"""Search for jobs: the grammar of queries, the terms of the index, and the thread that writes them."""
