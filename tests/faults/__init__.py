"""Runs that die, and disks and files that fail them: what looks finished is whole, and --resume
ends the run.
"""
