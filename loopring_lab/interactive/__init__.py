"""What a notebook or console shows of objects and answers, and what the Tab key completes."""
