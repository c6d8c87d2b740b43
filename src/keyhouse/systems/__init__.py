"""The five systems that ship with Keyhouse, each in a folder of its own, each reading like the
document it came from."""
