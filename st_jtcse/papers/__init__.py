"""What only the reproduction of papers needs: losses, evaluations, diagnostics and commands.

It plugs into the rest of the package as a third party's would: by entry points and public names.
"""
