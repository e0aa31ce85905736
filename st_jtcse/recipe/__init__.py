"""What a recipe says: read, laid over what it extends, checked and resolved once, into stages that
are whole.
"""
