//! Passwords stand in no output, and no output acts on a terminal.
