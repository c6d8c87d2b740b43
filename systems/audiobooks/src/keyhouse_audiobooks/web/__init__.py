"""The pages of the library at `/audiobooks/`: shelves, books, the player, and administration.

Pages are rendered by the server and read through the operations that the API uses. The scripts in
`assets` play, save places through the API, and keep books for use without a network.
"""
