"""A declared schema as a service: `keyhouse serve recipes:BOX`.

Routes, subjects, tokens and the OpenAPI document follow from the declarations. `catalog` says what
is served, `operations` does it, `routes` and `subjects` are the two protocols.
"""
