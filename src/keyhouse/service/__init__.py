"""The service layer: everything that a served schema or system needs, implemented once.

It knows no system and no server process. Import from its modules: `system` is light, so that
commands can list systems without loading what serving needs.
"""
