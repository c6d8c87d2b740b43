"""Each engine against its bare driver doing the same durable work. Each module has `measure`."""
