"""Exact DataFrames from a layer-2 exchange relayer, for notebooks."""
