"""Holdfast in the frameworks that people already use."""
