"""The commands of `keyhouse`, one file each with its own helpers. `app` lists them."""
