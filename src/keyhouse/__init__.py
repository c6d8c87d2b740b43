"""Keyhouse: declare a keyspace once, and get a typed, transactional, isolated, inspectable store on the engine you have."""
