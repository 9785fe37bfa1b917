//! Who is the server and who is the client: proved, and not taken from names.
