"""Folders of Delta tables whose commits survive a power cut and whose files carry digests."""
