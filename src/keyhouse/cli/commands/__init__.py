"""The commands of `keyhouse`, one file each, with the helpers that only it needs. `app` lists them."""
