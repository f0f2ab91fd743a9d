"""Leads are collected from a site by workers over HTTP, in two languages: see README.md beside this file."""
